# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A server that sets defaults, prunes, mutates, deletes or refuses objects causes no endless requests."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import anyio
import pytest
from controller_runtime.client import MERGE, Client, interceptor, raw_patch
from controller_runtime.fake import FakeClient
from controller_runtime.machinery.errors import ConflictError, ForbiddenError, ServerError

from pkg.apis.schedulerplugins.v1alpha1 import PodGroup
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime
from pkg.controller.applier import OLD_JOB_SET
from testkit.trainjobs import GANG, KEY, MPI, built_world, suspended_world, world


async def test_a_restart_asks_nothing_about_a_job_set_that_holds_defaults() -> None:
    w = await suspended_world(GANG)
    for _ in range(2):
        await w.restart()
        assert await w.reconcile() == []


async def test_a_webhook_that_suspends_what_is_created_does_not_keep_it_suspended() -> None:
    w = await world()
    w.server.mutate = lambda spec, create: spec.update(suspend=True) if create else None
    assert await w.reconcile() == ["apply JobSet", "apply JobSet"]
    assert (await w.job_set())["spec"]["suspend"] is False


async def test_a_field_that_the_server_drops_neither_deletes_nor_repeats() -> None:
    w = await world(suspend=True)

    def prune(spec: dict[str, Any], _create: bool) -> None:
        for job in spec["replicatedJobs"]:
            job["template"]["spec"]["template"]["spec"]["containers"][0].pop("image")

    w.server.mutate = prune
    await w.reconcile()
    await w.server.observe(suspended=1)
    assert await w.reconcile() == []
    await w.restart()
    assert await w.reconcile() == ["apply JobSet dry run"]
    assert await w.reconcile() == []
    await w.suspend(False)
    assert await w.reconcile() == ["apply JobSet dry run", "apply JobSet"]
    assert (await w.job_set())["spec"]["suspend"] is False


CLAIMS = [{"templates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]}]


async def test_a_job_set_that_is_too_old_for_claims_has_an_event_and_a_remark_until_it_is_upgraded() -> None:
    w = await world()
    runtime = await w.server.get(ClusterTrainingRuntime, ("", "rt"))
    changed = runtime.to_dict()
    changed["spec"]["template"]["spec"]["volumeClaimPolicies"] = CLAIMS
    await w.server.update(ClusterTrainingRuntime.from_dict(changed))
    refusal = (
        "failed to create typed patch object (ns/job; jobset.x-k8s.io/v1alpha2, Kind=JobSet): "
        ".spec.volumeClaimPolicies: field not declared in schema"
    )

    def refuse(_spec: dict[str, Any], _create: bool) -> None:
        raise ServerError(refusal, code=500, reason="InternalError")

    w.server.mutate = refuse
    with pytest.raises(ExceptionGroup, match=OLD_JOB_SET):
        await w.reconcile()
    assert [each for each in w.recorder.events if OLD_JOB_SET in each]
    assert w.reconciler.remark() == OLD_JOB_SET
    w.server.mutate = lambda _spec, _create: None
    assert await w.reconcile() == ["apply JobSet"]
    assert w.reconciler.remark() is None


async def test_a_webhook_that_changes_what_is_created_does_not_cause_a_cycle_of_deletions() -> None:
    w = await suspended_world()

    def mirror(spec: dict[str, Any], create: bool) -> None:
        if create:
            container = spec["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]
            container["image"] = "mirror/" + container["image"]

    w.server.mutate = mirror
    await w.edit_image()
    deleted = 0
    for _ in range(6):
        try:
            calls = await w.reconcile()
        except ForbiddenError as error:
            assert "immutable" in str(error)  # noqa: PT017 # it repeats until the webhook is changed
            await w.server.observe(suspended=1)
            continue
        deleted += calls.count("delete JobSet")
        if "delete JobSet" in calls:
            await w.server.collect()
    assert deleted == 1
    assert any("immutable" in event for event in w.recorder.events)


async def test_a_job_set_deleted_in_the_middle_is_tried_again_without_a_warning() -> None:
    w = await suspended_world()
    apply = w.server.apply

    async def late(obj: Any, **_: Any) -> Any:
        await FakeClient.delete(w.server, obj)
        raise ConflictError("Precondition failed: UID in precondition: a, UID in object meta: ", code=409)

    w.server.apply = late  # type: ignore[method-assign] # the object is deleted before each apply
    await w.suspend(False)
    await w.reconcile()
    assert w.result.requeue_after
    assert w.recorder.events == []
    w.server.apply = apply  # type: ignore[method-assign] # no more deletions
    assert await w.reconcile() == ["apply JobSet"]


async def test_a_terminating_namespace_is_not_asked_again_at_once_and_causes_no_warning() -> None:
    w = await world(MPI)
    refused = 0

    async def terminating(*_: Any, **__: Any) -> Any:
        nonlocal refused
        refused += 1
        details = {"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]}
        raise ForbiddenError("unable to create new content", code=403, reason="Forbidden", details=details)

    w.server.apply = terminating  # type: ignore[method-assign] # the server refuses
    for _ in range(30):  # each deletion in the namespace enqueues the TrainJob
        await w.reconcile()
        assert w.result.requeue_after == timedelta(seconds=60)
        w.now -= timedelta(hours=1)  # the clock is set
        await anyio.sleep(2)
    assert refused == 1
    await anyio.sleep(2)
    await w.reconcile()
    assert refused == 2
    assert w.recorder.events == []


@pytest.mark.parametrize("conflicts", [0, 1, 3])
async def test_a_pod_group_that_a_webhook_changes_is_healed_though_others_write_it(conflicts: int) -> None:
    """Once the PodGroup of a running job exists, it is not compared with the wanted one again."""
    w = await built_world(GANG)
    made = await w.server.get(PodGroup, KEY)
    await w.server.delete(made)
    applies = 0

    async def tune(client: Client, obj: Any, **options: Any) -> Any:
        nonlocal applies
        if obj.gvk != PodGroup.gvk:
            return await client.apply(obj, **options)
        applies += 1
        if 1 < applies <= 1 + conflicts:
            label = raw_patch(MERGE, b'{"metadata":{"labels":{"attempt":"%d"}}}' % applies)
            await client.patch(await client.get(PodGroup, KEY), label)
        stored = await client.apply(obj, **options)
        if applies > 1:
            return stored
        return await client.patch(stored, raw_patch(MERGE, b'{"spec":{"minMember":7}}'))

    await w.restart(interceptor.Funcs(apply=tune))
    await w.reconcile()
    assert (await w.server.get(PodGroup, KEY)).spec == made.spec


@pytest.mark.parametrize("change", ["edited each time", "deleted", "being deleted", "orphaned"])
async def test_a_pod_group_that_others_keep_writing_or_take_away_is_left_for_the_next_reconcile(
    change: str,
) -> None:
    w = await built_world(GANG)
    await w.server.delete(await w.server.get(PodGroup, KEY))
    applies = 0

    async def tune(client: Client, obj: Any, **options: Any) -> Any:
        nonlocal applies
        applies += 1
        if applies == 1:
            stored = await client.apply(obj, **options)
            return await client.patch(stored, raw_patch(MERGE, b'{"spec":{"minMember":7}}'))
        live = await client.get(PodGroup, KEY)
        if change == "orphaned":
            live.metadata.owner_references = None
        elif change == "being deleted":
            live.metadata.finalizers = ["example.com/hold"]
        live.metadata.labels = {"attempt": str(applies)}
        live = await client.update(live)
        if "deleted" in change:
            await client.delete(live)
        return await client.apply(obj, **options)

    await w.restart(interceptor.Funcs(apply=tune))
    await w.reconcile()
    assert applies == (6 if change == "edited each time" else 2)
    assert [each.spec.min_member for each in await w.server.list(PodGroup)] == [7] * (change != "deleted")
    assert w.result.requeue_after
    assert w.recorder.events == []
