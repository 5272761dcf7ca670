# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Webhooks of simulated managers: encoded reviews, stored defaults, denials, and replicas that do not answer."""

import functools
import gc
import warnings
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any

import anyio
import pytest

import controller_runtime as ctrl
from controller_runtime import simtest
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.client import MERGE, raw_patch
from controller_runtime.machinery.errors import ForbiddenError, StatusError
from controller_runtime.manager import ControllerDefaults
from controller_runtime.simtest import Simulation
from controller_runtime.webhook import CustomDefaulter, CustomValidator

pytestmark = pytest.mark.real_time
OPTIONS = simtest.options(controller=ControllerDefaults(skip_name_validation=True))
RULE = {
    "operations": ["CREATE", "UPDATE"],
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "resources": ["configmaps"],
}


class Odd(CustomValidator[ConfigMap]):
    """Allows odd numbers only."""

    async def validate_create(self, obj: ConfigMap) -> list[str]:
        if int((obj.data or {}).get("number", "1")) % 2 == 0:
            raise ForbiddenError("the number is even", code=403, reason="Forbidden")
        return []

    async def validate_update(self, old: ConfigMap, new: ConfigMap) -> list[str]:
        return await self.validate_create(new)

    async def validate_delete(self, obj: ConfigMap) -> list[str]:
        return []


class Counted(CustomDefaulter[ConfigMap]):
    """Adds one to the data."""

    async def default(self, obj: ConfigMap) -> None:
        obj.data = {**(obj.data or {}), "seen": str(int((obj.data or {}).get("seen", "0")) + 1)}
        if "labelled" in obj.data:
            obj.metadata.labels = {**(obj.metadata.labels or {}), "seen": "yes"}


async def setup(mgr: ctrl.Manager) -> None:
    ctrl.new_webhook_managed_by(mgr, ConfigMap).with_validator(Odd()).with_defaulter(Counted()).complete()


def configuration(kind: str, path: str, policy: str = "Fail", **options: Any) -> dict[str, Any]:
    hook = {"clientConfig": {"service": {"path": path}}, "failurePolicy": policy, "timeoutSeconds": 5}
    hook |= {"name": f"{path[1:7]}.example.com", "rules": [RULE], "sideEffects": "None"}
    return {"kind": kind, "webhooks": [hook | options]}


def lived(
    work: Callable[[Simulation], Awaitable[None]],
    policy: str = "Fail",
    *,
    validates: str = "/validate--v1-configmap",
    **options: Any,
) -> None:
    """Simulate a cluster with the managers' webhooks, and call ``work`` after ten seconds; raise any failure."""

    def scenario(sim: Simulation) -> None:
        sim.serve(ConfigMap)
        sim.manager(setup, options=OPTIONS)
        sim.admission(
            configuration("ValidatingWebhookConfiguration", validates, policy, **options),
            configuration("MutatingWebhookConfiguration", "/mutate--v1-configmap", policy, **options),
        )

        async def after_ten_seconds(sim: Simulation) -> None:
            await anyio.sleep(10)
            await work(sim)

        sim.finally_(after_ten_seconds)

    outcome = simtest.run(scenario, 1, minutes=0.1, faults=0)
    if outcome.failure is not None:
        raise outcome.failure


def config_map(**data: str) -> ConfigMap:
    return ConfigMap.from_dict({"metadata": {"namespace": "default", "name": "c"}, "data": data})


def test_a_defaulter_changes_what_is_stored_at_creates_and_updates() -> None:
    async def work(sim: Simulation) -> None:
        created = await sim.client().create(config_map(number="1"))
        assert created.data == {"number": "1", "seen": "1"}
        created.data = {"number": "3", "seen": "6"}
        assert (await sim.client().update(created)).data == {"number": "3", "seen": "7"}
        patched = await sim.client().patch(created, raw_patch(MERGE, b'{"data":{"number":"5"}}'))
        assert patched.data == {"number": "5", "seen": "8"}
        assert sim.server.objects(ConfigMap)[0]["data"] == {"number": "5", "seen": "8"}

    lived(work)


def test_an_applied_object_whose_metadata_a_defaulter_changes_is_complete() -> None:
    async def work(sim: Simulation) -> None:
        made = await sim.client().apply(config_map(labelled="1"), field_owner="me")
        assert made.metadata.labels == {"seen": "yes"}
        assert made.metadata.uid
        assert made.metadata.creation_timestamp

    lived(work)


def test_a_validator_denies_with_the_servers_text() -> None:
    async def work(sim: Simulation) -> None:
        with pytest.raises(StatusError, match=r'"valida\.example\.com" denied the request: the number'):
            await sim.client().create(config_map(number="2"))
        assert sim.server.objects(ConfigMap) == []

    lived(work)


@pytest.mark.parametrize(("policy", "stored"), [("Fail", 0), ("Ignore", 1)])
def test_without_replicas_the_failure_policy_decides(policy: str, stored: int) -> None:
    async def work(sim: Simulation) -> None:
        for name in ("manager-0", "manager-1"):
            sim.kill(name)
        fails = (
            pytest.raises(StatusError, match="failed calling webhook") if policy == "Fail" else nullcontext()
        )
        with fails:
            await sim.client().create(config_map(number="1"))
        assert len(sim.server.objects(ConfigMap)) == stored

    lived(work, policy)


def test_a_paused_replica_lets_a_call_time_out() -> None:
    async def work(sim: Simulation) -> None:
        for process in sim.processes.values():
            process.paused = True
        before = sim.loop.time()
        with pytest.raises(StatusError, match="context deadline exceeded"):
            await sim.client().create(config_map(number="1"))
        assert sim.loop.time() - before > 5
        for process in sim.processes.values():
            sim.loop.resume(process)

    lived(work)


def test_a_call_to_a_replica_that_is_killed_while_it_is_paused_leaves_nothing_behind() -> None:
    async def create(sim: Simulation) -> None:
        with pytest.raises(StatusError, match="context deadline exceeded"):
            await sim.client().create(config_map(number="1"))

    async def work(sim: Simulation) -> None:
        processes = dict(sim.processes)
        for process in processes.values():
            process.paused = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(create, sim)
            await anyio.sleep(8)
            for name in processes:
                sim.kill(name)

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        lived(work)
        gc.collect()
    assert [str(each.message) for each in found if each.category is RuntimeWarning] == []


def test_a_review_that_is_too_long_on_its_way_times_out() -> None:
    async def work(sim: Simulation) -> None:
        before = sim.loop.time()
        with (
            sim.webhooks.delays.during(lambda: 9.0),
            pytest.raises(StatusError, match="context deadline exceeded"),
        ):
            await sim.client().create(config_map(number="1"))
        assert 5 <= sim.loop.time() - before < 6
        await sim.client().create(config_map(number="1"))

    lived(work)


@pytest.mark.parametrize(("policy", "stored"), [("Fail", 0), ("Ignore", 1)])
def test_while_webhooks_are_unreachable_the_failure_policy_decides(policy: str, stored: int) -> None:
    async def work(sim: Simulation) -> None:
        sim.webhooks.unreachable += 1
        refused = pytest.raises(StatusError, match="connection refused")
        with refused if policy == "Fail" else nullcontext():
            await sim.client().create(config_map(number="2"))
        assert len(sim.server.objects(ConfigMap)) == stored

    lived(work, policy)


def test_a_dry_run_is_reviewed_and_stores_nothing() -> None:
    async def work(sim: Simulation) -> None:
        client = sim.client()
        with pytest.raises(StatusError, match="the number is even"):
            await client.create(config_map(number="2"), dry_run=True)
        assert (await client.create(config_map(number="1"), dry_run=True)).data == {
            "number": "1",
            "seen": "1",
        }
        assert sim.server.objects(ConfigMap) == []
        created = await client.create(config_map(number="1"))
        created.data = {"number": "3", "seen": "1"}
        assert (await client.update(created, dry_run=True)).data == {"number": "3", "seen": "2"}
        assert sim.server.objects(ConfigMap)[0]["data"] == {"number": "1", "seen": "1"}

    lived(work)


def test_a_webhook_with_side_effects_refuses_dry_runs() -> None:
    async def work(sim: Simulation) -> None:
        with pytest.raises(StatusError, match="does not support dry run"):
            await sim.client().create(config_map(number="1"), dry_run=True)
        await sim.client().create(config_map(number="1"))

    lived(work, sideEffects="Some")


@pytest.mark.parametrize("labels", [{"checked": "no"}, {}])
def test_an_object_that_the_selector_does_not_pick_is_not_reviewed(labels: dict[str, str]) -> None:
    async def work(sim: Simulation) -> None:
        obj = config_map(number="2")
        obj.metadata.labels = labels
        if labels:
            await sim.client().create(obj)
            obj.metadata.labels = {}
        with pytest.raises(StatusError, match="the number is even"):
            await (sim.client().update(obj) if labels else sim.client().create(obj))

    expression = {"key": "checked", "operator": "NotIn", "values": ["no"]}
    lived(work, objectSelector={"matchExpressions": [expression]})


def test_a_namespace_that_the_selector_does_not_pick_is_not_reviewed() -> None:
    async def work(sim: Simulation) -> None:
        assert (await sim.client().create(config_map(number="2"))).data == {"number": "2"}

    lived(work, namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "another"}})


def test_what_a_defaulter_adds_passes_the_schema() -> None:
    async def work(sim: Simulation) -> None:
        def without_seen(document: dict[str, Any]) -> dict[str, Any]:
            data = {name: value for name, value in (document.get("data") or {}).items() if name != "seen"}
            return {**document, "data": data}

        sim.server.complete[ConfigMap.gvk] = without_seen
        created = await sim.client().create(config_map(number="1"))
        assert created.data == {"number": "1"}
        created.data = {"number": "3"}
        assert (await sim.client().update(created)).data == {"number": "3"}

    lived(work)


def test_a_patch_of_a_validating_webhook_is_an_error() -> None:
    async def work(sim: Simulation) -> None:
        with pytest.raises(StatusError, match="validating webhook must not return a patch"):
            await sim.client().create(config_map(number="1"))

    lived(work, validates="/mutate--v1-configmap")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"matchConditions": [{"name": "a", "expression": "true"}]}, "match conditions are not simulated"),
        ({"clientConfig": {"url": "https://x"}}, "only webhooks of a service are simulated"),
    ],
)
def test_webhooks_that_cannot_be_simulated_are_refused(options: dict[str, Any], message: str) -> None:
    def scenario(sim: Simulation) -> None:
        sim.serve(ConfigMap)
        sim.admission(configuration("ValidatingWebhookConfiguration", "/validate--v1-configmap", **options))

    with pytest.raises(ValueError, match=message):
        simtest.run(scenario, 1, minutes=0.1, faults=0)


def test_lives_with_webhooks_have_faults_of_webhooks() -> None:
    plans: dict[bool, set[str]] = {}

    def scenario(sim: Simulation, *, reviewed: bool) -> None:
        sim.serve(ConfigMap)
        if reviewed:
            sim.admission(configuration("ValidatingWebhookConfiguration", "/validate--v1-configmap"))

    for reviewed in (False, True):
        outcome = simtest.run(functools.partial(scenario, reviewed=reviewed), 1, minutes=1, faults=100)
        plans[reviewed] = {step.name for step in outcome.steps}
    assert plans[True] - plans[False] == {"fault: slow webhooks", "fault: unreachable webhooks"}
