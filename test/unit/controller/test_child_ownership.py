# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Objects of the same name that the TrainJob does not control are adopted, or reported and left unchanged."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import anyio
import pytest
from controller_runtime.apis.core.v1 import ConfigMap, Secret
from controller_runtime.apis.meta.v1 import OwnerReference
from controller_runtime.client import MERGE, Client, interceptor, raw_patch
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Object
from controller_runtime.machinery.errors import NotFoundError
from controller_runtime.reconcile import Request, Result
from controller_runtime.workqueue import PriorityQueue

from pkg.apis.config.v1alpha1 import Configuration
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.schedulerplugins.v1alpha1 import PodGroup
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.apis.volcano.v1beta1 import PodGroup as VolcanoPodGroup
from pkg.runtime.core import snapshot_name
from pkg.util import trainjob
from pkg.util.trainjob import ChildConflictError
from testkit.trainjobs import (
    FLUX,
    GANG,
    KEY,
    MPI,
    PLAIN,
    VOLCANO,
    ReconcilerWorld,
    built_world,
    running_world,
    train_job,
    world,
)


def planted(kind: type[Object], name: str, **parts: Any) -> Object:
    return kind.from_dict({"metadata": {"name": name, "namespace": "ns", "uid": "u"}, **parts})


@pytest.mark.parametrize(
    ("policy", "stranger"),
    [
        (PLAIN, planted(JobSet, "job", spec={"replicatedJobs": [{"name": "x", "template": {}}]})),
        (MPI, planted(ConfigMap, "job-mpi-hostfile", data={"hostfile": "evil"})),
        (FLUX, planted(Secret, "job-flux-curve", data={"curve.cert": "eA=="})),
        (GANG, planted(PodGroup, "job", spec={"minMember": 1})),
        (VOLCANO, planted(VolcanoPodGroup, "job", spec={"minMember": 1})),
    ],
    ids=lambda value: value.gvk.kind if isinstance(value, Object) else "",
)
@pytest.mark.parametrize("suspend", [False, True], ids=["running", "suspended"])
async def test_an_object_without_our_controller_is_neither_used_nor_changed(
    policy: dict[str, Any], stranger: Object, suspend: bool
) -> None:
    w = await world(policy, stranger, suspend=suspend)
    before = await w.server.get(type(stranger), stranger.key)
    with pytest.raises((ChildConflictError, ExceptionGroup)):
        await w.reconcile()
    assert await w.server.get(type(stranger), stranger.key) == before
    assert "exists and has no controller" in w.recorder.events[0]
    if not isinstance(stranger, JobSet) and not suspend:
        with pytest.raises(NotFoundError):
            await w.job_set()


@pytest.mark.parametrize("suspend", [False, True], ids=["running", "suspended"])
async def test_keys_that_a_user_made_beforehand_are_used_and_not_changed(suspend: bool) -> None:
    keys = planted(Secret, "job-mpi-ssh-auth", data={"ssh-privatekey": "eA==", "ssh-publickey": "eA=="})
    w = await world(MPI, keys, suspend=suspend)
    before = await w.server.get(Secret, keys.key)
    assert await w.reconcile() == ["apply ConfigMap", "apply JobSet"][:: -1 if suspend else 1]
    await w.suspend(not suspend)
    await w.reconcile()
    assert await w.server.get(Secret, keys.key) == before
    assert w.recorder.events == []


async def orphaned(w: ReconcilerWorld) -> None:
    """Delete the TrainJob so that its JobSet is orphaned, and create it again with another UID."""
    job, live = await w.server.get(TrainJob, KEY), await w.server.get(JobSet, KEY)
    live.metadata.owner_references = None
    await w.server.update(live)
    await w.server.delete(job)
    again = train_job(suspend=job.spec.suspend)
    again.metadata.uid = "uid-again"
    w.server.add(again)


@pytest.mark.parametrize(
    ("version", "name", "message"),
    [
        pytest.param("2.1", "job-mpi-hostfile", "exists and has no controller", id="a child"),
        pytest.param("2.3", snapshot_name(train_job()), "owned by another object", id="the snapshot"),
    ],
)
async def test_a_train_job_is_tried_each_minute_while_a_name_is_taken(
    version: str, name: str, message: str
) -> None:
    """Nothing enqueues the TrainJob when a ConfigMap without an owner is deleted, and retries come minutes apart."""
    w = await world(MPI, planted(ConfigMap, name, data={"runtime": "{}"}))
    w.cfg = Configuration(compatibility_version=version)
    await w.restart(store=w.server)
    queue: PriorityQueue[Request] = PriorityQueue()
    await w.reconciler.timer.start(queue)
    began = anyio.current_time()
    with pytest.raises((ChildConflictError, ExceptionGroup), match=message):
        await w.reconcile()
    queue.add(Request(*KEY), after=1000)  # the retry

    assert await queue.get() == Request(*KEY)
    assert anyio.current_time() - began == pytest.approx(60)


@pytest.mark.parametrize(
    ("policy", "kind", "name", "edit"),
    [
        (PLAIN, JobSet, "job", {}),
        (MPI, ConfigMap, "job-mpi-hostfile", {"data": {"hostfile": "edited"}}),
        (GANG, PodGroup, "job", {"spec": {"minMember": 7}}),
    ],
    ids=["JobSet", "ConfigMap", "PodGroup"],
)
async def test_an_apply_on_its_way_does_not_return_an_orphan_to_a_deleted_train_job(
    policy: dict[str, Any], kind: type[Object], name: str, edit: dict[str, Any]
) -> None:
    w = await built_world(policy, suspend=True)
    live = await w.server.get(kind, (KEY.namespace, name))
    await w.server.patch(live, raw_patch(MERGE, json.dumps(edit).encode()))
    await w.suspend(False)

    async def apply_late(client: Client, obj: Any, **options: Any) -> Any:
        """Remove the object's owner before the request arrives, as an orphaning deletion of the TrainJob does."""
        if obj.gvk == kind.gvk:
            live = await client.get(kind, (KEY.namespace, name))
            live.metadata.owner_references = None
            await client.update(live)
        return await client.apply(obj, **options)

    await w.restart(interceptor.Funcs(apply=apply_late))
    await w.reconcile()
    assert w.result.requeue_after
    assert not (await w.server.get(kind, (KEY.namespace, name))).metadata.owner_references
    assert w.recorder.events == []


@pytest.mark.parametrize("suspend", [False, True], ids=["running", "suspended"])
async def test_an_orphan_of_ours_is_adopted(suspend: bool) -> None:
    w = await running_world(suspend=suspend)
    await orphaned(w)
    uid = (await w.job_set())["metadata"]["uid"]
    assert (await w.reconcile())[0] == "patch JobSet"
    metadata = (await w.job_set())["metadata"]
    assert metadata["uid"] == uid
    assert metadata["ownerReferences"][0]["uid"] == "uid-again"
    assert (await w.server.get(TrainJob, KEY)).status.jobs_status
    assert await w.reconcile() == []


async def test_an_orphan_is_not_adopted_for_a_train_job_whose_deletion_the_cache_does_not_know() -> None:
    w = await built_world()
    await orphaned(w)
    deleted = (await w.server.get(TrainJob, KEY)).deep_copy()
    deleted.metadata.deletion_timestamp = "2025-01-01T00:00:00Z"
    await w.restart(reader=FakeClient(deleted))
    assert await w.reconcile() == []
    assert w.result.requeue_after
    assert "ownerReferences" not in (await w.job_set())["metadata"]


async def test_an_orphan_that_another_writer_gave_owners_meanwhile_is_tried_again() -> None:
    w = await built_world()
    await orphaned(w)

    async def patch_late(client: Client, obj: Any, patch: Any, **options: Any) -> Any:
        """Give the JobSet another owner before the request arrives."""
        if obj.gvk == JobSet.gvk:
            live = await client.get(JobSet, KEY)
            live.metadata.owner_references = [
                OwnerReference(api_version="v1", kind="ConfigMap", name="other", uid="u")
            ]
            await client.update(live)
        return await client.patch(obj, patch, **options)

    await w.restart(interceptor.Funcs(patch=patch_late))
    await w.reconcile()
    assert w.result.requeue_after
    assert [each["name"] for each in (await w.job_set())["metadata"]["ownerReferences"]] == ["other"]


async def test_nothing_is_applied_to_an_orphan_whose_deletion_began_before_it_was_adopted() -> None:
    w = await built_world(suspend=True)
    await orphaned(w)
    await w.edit_image()

    async def patch_late(client: Client, obj: Any, patch: Any, **options: Any) -> Any:
        """Delete the JobSet, which a finalizer keeps, before the request arrives."""
        if obj.gvk == JobSet.gvk:
            live = await client.get(JobSet, KEY)
            live.metadata.finalizers = ["example.com/hold"]
            await client.delete(await client.update(live))
        return await client.patch(obj, patch, **options)

    await w.restart(interceptor.Funcs(patch=patch_late))
    assert [each for each in await w.reconcile() if each.startswith("apply")] == []
    assert w.result.requeue_after


@pytest.mark.parametrize("end", [None, "Completed", "Failed"])
async def test_an_orphan_with_another_spec_that_has_run_is_not_adopted_and_gives_no_verdict(
    end: str | None,
) -> None:
    w = await running_world(suspend=end is not None)
    if end is not None:
        await w.finish(end)
    await orphaned(w)
    await w.edit_image()
    with pytest.raises(ChildConflictError):
        await w.reconcile()
    assert "ownerReferences" not in (await w.job_set())["metadata"]
    assert (await w.server.get(TrainJob, KEY)).status.jobs_status is None
    assert list(await w.conditions()) == ([] if end is None else ["Suspended"])


async def test_a_finished_train_job_keeps_its_status_when_its_job_set_is_orphaned() -> None:
    w = await built_world()
    await w.finish("Completed")
    await w.reconcile()
    before = (await w.server.get(TrainJob, KEY)).status
    live = await w.server.get(JobSet, KEY)
    live.metadata.owner_references = None
    await w.server.update(live)
    await w.server.observe(failed=1)
    await w.reconcile()
    assert (await w.server.get(TrainJob, KEY)).status == before


async def test_the_snapshot_of_a_deleted_train_job_of_the_name_is_awaited() -> None:
    w = await world()
    w.cfg = Configuration(compatibility_version="2.3")
    await w.restart(store=w.server)
    predecessor = train_job()
    predecessor.metadata.uid = "uid-earlier"
    left = planted(ConfigMap, snapshot_name(predecessor), data={"runtime": "{}"})
    left.metadata.owner_references = [trainjob.controller_reference(predecessor)]
    w.server.add(left)

    await w.reconcile()
    assert w.result.requeue_after
    assert w.recorder.events == []

    await w.server.delete(left)
    await w.reconcile()
    assert (await w.job_set())["spec"]


async def test_the_job_set_of_an_earlier_job_of_that_name_is_waited_for_and_its_verdict_is_not_taken() -> (
    None
):
    w = await built_world()
    await w.finish("Completed")
    await w.server.delete(await w.server.get(TrainJob, KEY))
    w.server.add(train_job(metadata={"uid": "uid-of-the-next"}))
    assert await w.writes() == []
    assert w.result == Result(requeue_after=timedelta(seconds=1))
    await w.server.delete(await w.server.get(JobSet, KEY))  # the garbage collector does this
    assert await w.writes() == ["apply JobSet"]
    assert await w.conditions() == {}


async def test_a_job_set_that_something_else_controls_is_not_taken_over() -> None:
    owner = {"apiVersion": "a/v1", "kind": "Boss", "name": "b", "uid": "u", "controller": True}
    metadata = {"name": "job", "namespace": "ns", "ownerReferences": [owner]}
    w = await world({}, JobSet.from_dict({"metadata": metadata, "spec": {"suspend": True}}))
    with pytest.raises(ChildConflictError, match="jobset ns/job: controlled by Boss b"):
        await w.reconcile()
    assert w.server.writes == []
    assert "ns/job: controlled by Boss b" in w.recorder.events[0]


async def test_a_finished_job_does_not_care_who_took_the_name_of_its_job_set() -> None:
    w = await built_world()
    await w.finish("Completed")
    await w.reconcile()
    job_set = await w.server.get(JobSet, KEY)
    job_set.metadata.owner_references[0].uid = "another"  # type: ignore[index] # the reconciler sets one
    await w.server.update(job_set)
    await w.server.observe(active=3)  # its status must not be copied
    assert await w.writes() == []
