# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever a review says: an answer, the library's own verdict; and what is accepted can be built."""

import asyncio
import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from controller_runtime import metrics
from controller_runtime.apis.admission.v1 import AdmissionReview
from controller_runtime.client import FakeClient
from controller_runtime.httpserver import HTTPRequest
from controller_runtime.webhook import ValidatorHandler, Webhook
from controller_runtime.webhook.admission import VERDICTS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from json_places import places

from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainJob
from pkg.offline import schema, shipped
from pkg.offline.stored import schemas
from pkg.runtime import core, runtime_for
from pkg.webhooks import TrainJobWebhook

LoopFactory = Callable[[], asyncio.AbstractEventLoop]
SCHEMAS = schemas()
RUNTIMES = [*shipped.manifests("runtimes"), *shipped.manifests("runtimes/data-cache")]
PATH = "/validate"


def sparse(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A map with some of the fields."""
    return st.fixed_dictionaries({}, optional=fields)


NAMES = st.sampled_from(["node", "launcher", "dataset-initializer", "model-initializer", "nope", "a"])
WORDS = st.sampled_from(["", "a", "tune", "run", "python", "--x=1", "full_finetune_distributed", "model.x=1"])
QUANTITIES = st.sampled_from(["1", "500m", "1Gi", 2, "0"])
RESOURCES = st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), QUANTITIES, max_size=2)
ENVIRONMENT = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.sampled_from(
                ["A", "B", "PET_NNODES", "PET_NPROC_PER_NODE", "OMPI_MCA_x", "STORAGE_URI"]
            )
        },
        optional={"value": st.sampled_from(["", "1"])},
    ),
    max_size=2,
    unique_by=lambda each: each["name"],
)
TRAINER = sparse(
    image=WORDS,
    command=st.lists(WORDS, max_size=3),
    args=st.lists(WORDS, max_size=3),
    env=ENVIRONMENT,
    numNodes=st.integers(-1, 4),
    resourcesPerNode=sparse(limits=RESOURCES, requests=RESOURCES),
    numProcPerNode=st.sampled_from([0, 1, 2, -1, "auto", "cpu", "gpu", "x", "2"]),
)
INITIALIZER = sparse(storageUri=st.just("hf://a/b"), env=ENVIRONMENT, secretRef=st.just({"name": "token"}))
POD = sparse(
    serviceAccountName=st.just("me"),
    nodeSelector=st.just({"a": "b"}),
    tolerations=st.just([{"key": "a", "operator": "Exists"}]),
    containers=st.lists(
        st.fixed_dictionaries({"name": NAMES}, optional={"env": ENVIRONMENT}),
        max_size=2,
        unique_by=lambda c: c["name"],
    ),
    initContainers=st.lists(st.fixed_dictionaries({"name": NAMES}), max_size=1),
    volumes=st.just([{"name": "v", "emptyDir": {}}]),
    schedulingGates=st.just([{"name": "gate"}]),
    imagePullSecrets=st.just([{"name": "secret"}]),
)
OVERRIDES = st.lists(
    st.fixed_dictionaries(
        {"targetJobs": st.lists(st.fixed_dictionaries({"name": NAMES}), max_size=2)},
        optional={
            "spec": POD,
            "metadata": sparse(labels=st.just({"a": "b"}), annotations=st.just({"c": "d"})),
        },
    ),
    max_size=2,
)
TRAIN_JOBS = st.fixed_dictionaries(
    {
        "runtimeRef": st.fixed_dictionaries(
            {"name": st.sampled_from([*(each["metadata"]["name"] for each in RUNTIMES), "nope"])},
            optional={"kind": st.sampled_from(["ClusterTrainingRuntime", "TrainingRuntime", "Other"])},
        )
    },
    optional={
        "trainer": TRAINER,
        "initializer": sparse(dataset=INITIALIZER, model=INITIALIZER),
        "labels": st.just({"x": "y"}),
        "annotations": st.just({"x": "y"}),
        "podTemplateOverrides": OVERRIDES,
        "suspend": st.booleans(),
    },
).map(
    lambda spec: {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "job", "namespace": "ns", "uid": "u"},
        "spec": spec,
    }
)
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


class World:
    """The webhook, its validator and the runtimes behind them, with the shipped runtimes stored."""

    async def start(self) -> "World":
        client = FakeClient()
        for manifest in RUNTIMES:
            if manifest["kind"] == "ClusterTrainingRuntime":
                stored = copy.deepcopy(manifest)
                schema.default(SCHEMAS[ClusterTrainingRuntime.gvk], stored)
                client.add(ClusterTrainingRuntime.from_dict(stored))
        self.runtimes = await core.new(client, client)
        self.validator = TrainJobWebhook(self.runtimes)
        self.webhook = Webhook(PATH, ValidatorHandler(TrainJob, self.validator))
        return self

    async def answer(self, body: bytes) -> tuple[int, dict[str, Any]]:
        response = await self.webhook(
            HTTPRequest(method="POST", path=PATH, headers={"Content-Type": "application/json"}, body=body)
        )
        return response.status, json.loads(response.body)

    async def verdict(self, old: dict[str, Any] | None, new: dict[str, Any]) -> tuple[bool, str, list[str]]:
        """Ask the library."""
        try:
            job = TrainJob.from_dict(new)
            if old is None:
                return True, "", await self.validator.validate_create(job)
            return True, "", await self.validator.validate_update(TrainJob.from_dict(old), job)
        except VERDICTS as error:
            return False, str(error), list(getattr(error, "__notes__", ()))


def review(old: dict[str, Any] | None, new: Any) -> dict[str, Any]:
    request = {"uid": "u-1", "operation": "CREATE" if old is None else "UPDATE", "object": new}
    if old is not None:
        request["oldObject"] = old
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def run(loop_factory: LoopFactory, check: Callable[[World], Any]) -> None:
    async def go() -> None:
        await check(await World().start())

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(go())


def sane(data: dict[str, Any]) -> dict[str, Any] | None:
    """Return what the API server would pass on, or None where it would refuse."""
    stored = copy.deepcopy(data)
    schema.default(SCHEMAS[TrainJob.gvk], stored)
    return None if list(schema.problems(SCHEMAS[TrainJob.gvk], stored)) else stored


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(jobs=st.lists(TRAIN_JOBS, min_size=1, max_size=8), update=st.booleans())
def test_the_server_says_what_the_library_does(
    virtual_loop: LoopFactory, jobs: list[dict[str, Any]], update: bool
) -> None:
    async def check(world: World) -> None:
        for old, new in zip([None, *jobs], jobs, strict=False):
            before = old if update else None
            allowed, message, warnings = await world.verdict(before, new)
            status, answer = await world.answer(json.dumps(review(before, new)).encode())
            response = answer["response"]
            assert (status, response["uid"]) == (200, "u-1")
            assert response["allowed"] == allowed
            assert response["status"].get("message", "") == message
            assert response.get("warnings", []) == warnings

    run(virtual_loop, check)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(jobs=st.lists(TRAIN_JOBS, min_size=1, max_size=8))
def test_what_the_webhook_accepts_can_be_built(virtual_loop: LoopFactory, jobs: list[dict[str, Any]]) -> None:
    async def check(world: World) -> None:
        for job in filter(None, map(sane, jobs)):
            allowed, _, _ = await world.verdict(None, job)
            if allowed:
                decoded = TrainJob.from_dict(job)
                built = await runtime_for(world.runtimes, decoded.spec.runtime_ref).new_objects(decoded)
                assert "JobSet" in [each.gvk.kind for each in built], job

    run(virtual_loop, check)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(job=TRAIN_JOBS, data=st.data())
def test_a_review_with_anything_anywhere_is_answered_and_breaks_nothing(
    virtual_loop: LoopFactory, job: dict[str, Any], data: st.DataObject
) -> None:
    bodies = []
    for _ in range(5):
        body: Any = review(copy.deepcopy(job) if data.draw(st.booleans()) else None, copy.deepcopy(job))
        *parents, last = data.draw(st.sampled_from(places(body)[1:]))
        where = body
        for step in parents:
            where = where[step]
        where[last] = data.draw(JUNK)
        bodies.append(body)

    async def check(world: World) -> None:
        panics = metrics.WEBHOOK_PANICS._value.get()
        for body in bodies:
            status, answer = await world.answer(json.dumps(body).encode())
            assert status in (200, 400), body
            if status == 200:
                AdmissionReview.from_dict(answer)
                assert answer["response"]["status"]["code"] in (200, 400, 403), (body, answer)
        assert metrics.WEBHOOK_PANICS._value.get() == panics, bodies

    run(virtual_loop, check)


@pytest.mark.parametrize("depth", [10, 1_000, 100_000])
def test_depth_is_no_danger(virtual_loop: LoopFactory, depth: int) -> None:
    async def check(world: World) -> None:
        nested = '{"a":' * depth + "1" + "}" * depth
        body = json.dumps(review(None, "X")).replace('"X"', nested)
        status, _ = await world.answer(body.encode())
        assert status in (200, 400)

    run(virtual_loop, check)
