# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Every review gets an answer, with the verdict of a direct call of the validator; accepted TrainJobs can be built."""

import asyncio
import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from controller_runtime import metrics
from controller_runtime.apis.admission.v1 import AdmissionReview
from controller_runtime.fake import FakeClient, completer
from controller_runtime.serving import HTTPRequest
from controller_runtime.webhook import MutatorHandler, ValidatorHandler, Webhook, admission
from ctrl_testkit.small import places
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from trainerctl.offline import schema
from trainerctl.offline.stored import schemas

from pkg import shipped
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob
from pkg.runtime import core, runtime_for
from pkg.runtime.framework import InvalidFieldError
from pkg.webhooks import TrainJobDefaulter, TrainJobWebhook, validators
from testkit.builders import runtime_patch

LoopFactory = Callable[[], asyncio.AbstractEventLoop]
SCHEMAS = schemas()
RUNTIMES = [*shipped.manifests("runtimes"), *shipped.manifests("runtimes/data-cache")]
CLUSTER_RUNTIMES = [each["metadata"]["name"] for each in RUNTIMES if each["kind"] == "ClusterTrainingRuntime"]
PATH = "/validate"


def sparse(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for maps in which each of the fields may be missing."""
    return st.fixed_dictionaries({}, optional=fields)


def train_job(spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "job", "namespace": "ns", "uid": "u"},
        "spec": spec,
    }


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
).map(train_job)
ACCEPTABLE = st.fixed_dictionaries(
    {
        "runtimeRef": st.fixed_dictionaries({"name": st.sampled_from(CLUSTER_RUNTIMES)}),
        "trainer": TRAINER,
    },
    optional={"suspend": st.booleans()},
).map(train_job)
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
METADATA: dict[str, Any] = {
    "generateName": "job-",
    "resourceVersion": "7",
    "generation": 1,
    "creationTimestamp": "2026-01-01T00:00:00Z",
    "labels": {"kueue.x-k8s.io/queue-name": "a", "b": ""},
    "annotations": {"trainer.kubeflow.org/num-proc-per-node": "auto"},
    "finalizers": ["a/b"],
    "ownerReferences": [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u", "controller": True}
    ],
    "managedFields": [
        {
            "manager": "a",
            "operation": "Update",
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:spec": {"f:labels": {"f:x": {}}, "f:runtimePatches": {'k:{"manager":"a/b"}': {}}}
            },
        }
    ],
}
PATCHES = [runtime_patch("a/b", {"nodeSelector": {"a": "b"}}, metadata={"labels": {"a": "b"}})]


class World:
    """The webhooks with their validators, and a cluster with the shipped ClusterTrainingRuntimes."""

    async def start(self) -> "World":
        client = FakeClient()
        for manifest in RUNTIMES:
            if manifest["kind"] == "ClusterTrainingRuntime":
                stored = completer(SCHEMAS[ClusterTrainingRuntime.gvk])(manifest)
                client.add(ClusterTrainingRuntime.from_dict(stored))
        self.runtimes = await core.new(client, client)
        self.validator = TrainJobWebhook(self.runtimes)
        self.webhook = Webhook(PATH, ValidatorHandler(TrainJob, self.validator))
        self.webhooks = [Webhook(PATH, MutatorHandler(TrainJob, TrainJobDefaulter())), self.webhook]
        self.runtime_webhooks = [
            Webhook(PATH, ValidatorHandler(kind, validators(self.runtimes)[kind]))
            for kind in (ClusterTrainingRuntime, TrainingRuntime)
        ]
        return self

    async def answer(self, body: bytes, webhook: Webhook | None = None) -> tuple[int, dict[str, Any]]:
        response = await (webhook or self.webhook)(
            HTTPRequest(method="POST", path=PATH, headers={"Content-Type": "application/json"}, body=body)
        )
        return response.status, json.loads(response.body)

    async def verdict(self, old: dict[str, Any] | None, new: dict[str, Any]) -> tuple[bool, str, list[str]]:
        """Call the validator; return whether it admits the TrainJob, its error message, and its warnings."""
        try:
            job = TrainJob.from_dict(new)
            if old is None:
                return True, "", await self.validator.validate_create(job)
            return True, "", await self.validator.validate_update(TrainJob.from_dict(old), job)
        except admission.VERDICTS as error:
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
    """Return the object with the API server's defaults, or None if its schema refuses it."""
    stored = completer(SCHEMAS[TrainJob.gvk])(data)
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
@given(jobs=st.lists(TRAIN_JOBS | ACCEPTABLE, min_size=1, max_size=8))
@example(jobs=[train_job({"runtimeRef": {"name": "jax-distributed"}, "trainer": {"numNodes": -1}})])
def test_what_the_webhook_accepts_is_built_or_its_warning_names_the_field_that_prevents_it(
    virtual_loop: LoopFactory, jobs: list[dict[str, Any]]
) -> None:
    async def check(world: World) -> None:
        for job in filter(None, map(sane, jobs)):
            allowed, _, warnings = await world.verdict(None, job)
            if not allowed:
                continue
            decoded = TrainJob.from_dict(job)
            try:
                built = await runtime_for(world.runtimes, decoded.spec.runtime_ref).new_objects(decoded)
            except InvalidFieldError as error:  # upstream accepts it, so only a warning is compatible
                field = str(error).partition(" ")[0]
                assert any(warning.startswith(f"{field}: ") for warning in warnings), (job, warnings)
            else:
                assert "JobSet" in [each.gvk.kind for each in built], job

    run(virtual_loop, check)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(job=TRAIN_JOBS, runtime=st.sampled_from(RUNTIMES), data=st.data())
def test_a_review_with_anything_anywhere_is_answered_and_breaks_nothing(
    virtual_loop: LoopFactory, job: dict[str, Any], runtime: dict[str, Any], data: st.DataObject
) -> None:
    of_job = data.draw(st.booleans())
    obj: dict[str, Any] = copy.deepcopy(job if of_job else runtime)
    obj["metadata"].update(METADATA)
    if of_job:
        obj["spec"].setdefault("runtimePatches", PATCHES)
    bodies = []
    for _ in range(5):
        body: Any = review(obj, obj) if data.draw(st.booleans()) else review(None, obj)
        body = copy.deepcopy(body)
        if "oldObject" in body["request"] and data.draw(
            st.booleans()
        ):  # a client drops fields that it does not know
            for name in ("labels", "runtimePatches"):
                body["request"]["object"]["spec"].pop(name, None)
        inside = st.sampled_from(places(body)[1:])
        metadata = st.sampled_from(places(body["request"]["object"]["metadata"]))
        in_metadata = metadata.map(lambda path: ("request", "object", "metadata", *path))
        for *parents, last in data.draw(st.lists(inside | in_metadata, min_size=1, max_size=2)):
            where = body
            try:
                for step in parents:
                    where = where[step]
                where[last] = data.draw(JUNK)
            except (KeyError, IndexError, TypeError):  # the first replacement removed the path of the second
                continue
        bodies.append(body)

    async def check(world: World) -> None:
        panics = metrics.WEBHOOK_PANICS._value.get()
        for body in bodies:
            for webhook in world.webhooks if of_job else world.runtime_webhooks:
                status, answer = await world.answer(json.dumps(body).encode(), webhook)
                assert status in (200, 400), body
                if status == 200:
                    AdmissionReview.from_dict(answer)
                    assert answer["response"]["status"]["code"] in (200, 400, 403, 422), (body, answer)
        assert metrics.WEBHOOK_PANICS._value.get() == panics, bodies

    run(virtual_loop, check)


def changed(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """Return a TrainJob with ``value`` at a path in its metadata."""
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "job", "namespace": "ns", "uid": "u", **copy.deepcopy(METADATA)},
        "spec": {
            "runtimeRef": {"name": "torch-distributed"},
            "labels": {"x": "y"},
            "runtimePatches": PATCHES,
        },
    }
    *parents, last = path
    where: Any = job["metadata"]
    for step in parents:
        where = where[step]
    where[last] = value
    return job


@pytest.mark.parametrize("value", [{"a": 1}, [1], 7, True, "x"], ids=str)
@pytest.mark.parametrize("path", places(METADATA)[1:], ids=lambda path: ".".join(map(str, path)))
def test_metadata_of_any_type_is_answered(
    virtual_loop: LoopFactory, path: tuple[Any, ...], value: Any
) -> None:
    before, after = changed(("name",), "job"), changed(path, value)

    async def check(world: World) -> None:
        panics = metrics.WEBHOOK_PANICS._value.get()
        for old, new in ((None, after), (before, after), (after, before)):
            dropping = copy.deepcopy(new)
            del dropping["spec"]["labels"], dropping["spec"]["runtimePatches"]
            for body in (review(old, new), review(old, dropping)):
                for webhook in world.webhooks:
                    status, answer = await world.answer(json.dumps(body).encode(), webhook)
                    assert status == 200
                    assert answer["response"]["status"]["code"] in (200, 400, 403, 422), answer
        assert metrics.WEBHOOK_PANICS._value.get() == panics

    run(virtual_loop, check)


@pytest.mark.parametrize("depth", [10, 1_000, 100_000])
def test_depth_is_no_danger(virtual_loop: LoopFactory, depth: int) -> None:
    async def check(world: World) -> None:
        nested = '{"a":' * depth + "1" + "}" * depth
        body = json.dumps(review(None, "X")).replace('"X"', nested)
        status, _ = await world.answer(body.encode())
        assert status in (200, 400)

    run(virtual_loop, check)
