# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Changes of a TrainJob that reach its JobSet in place, and changes by others that stay or are reverted."""

from __future__ import annotations

from typing import Any

import pytest
from controller_runtime.apis.core.v1 import ResourceRequirements
from controller_runtime.client import MERGE, raw_patch
from controller_runtime.machinery.errors import ServerError

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.schedulerplugins.v1alpha1 import PodGroup
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainJob
from pkg.apis.volcano.v1beta1 import PodGroup as VolcanoPodGroup
from testkit.trainjobs import (
    GANG,
    KEY,
    PLAIN,
    VOLCANO,
    built_world,
    running_world,
    runtime,
    suspended_world,
    world,
)


def override(**spec: Any) -> list[dict[str, Any]]:
    return [{"targetJobs": [{"name": "node"}], "spec": spec}]


async def test_kueues_way_changes_the_job_set_in_place() -> None:
    w = await suspended_world()
    uid = (await w.job_set())["metadata"]["uid"]

    async def set_overrides(**spec: Any) -> None:
        wanted = TrainJob.from_dict({"spec": {"podTemplateOverrides": override(**spec) if spec else None}})
        await w.train_job(
            lambda job: setattr(job.spec, "pod_template_overrides", wanted.spec.pod_template_overrides)
        )

    for pool in ("a", "b"):
        await set_overrides(nodeSelector={"pool": pool}, tolerations=[{"key": pool, "operator": "Exists"}])
        await w.suspend(False)
        assert await w.reconcile() == ["apply JobSet"]
        assert (await w.pod())["nodeSelector"] == {"pool": pool}
        assert (await w.job_set())["spec"]["suspend"] is False
        await w.server.observe(active=1)
        await w.suspend(True)
        assert await w.reconcile() == ["apply JobSet"]
        await w.server.observe(suspended=1)
        await set_overrides()
        assert await w.reconcile() == ["patch TrainJob", "apply JobSet"]
        assert "nodeSelector" not in await w.pod()
        assert await w.reconcile() == []
    assert (await w.job_set())["metadata"]["uid"] == uid


async def test_a_job_set_gets_its_new_spec_before_its_siblings_change_and_starts_after_them() -> None:
    w = await suspended_world(GANG)
    wanted = TrainJob.from_dict({"spec": {"podTemplateOverrides": override(nodeSelector={"pool": "a"})}})
    await w.train_job(
        lambda job: setattr(job.spec, "pod_template_overrides", wanted.spec.pod_template_overrides)
    )
    timeout = raw_patch(MERGE, b'{"spec":{"podGroupPolicy":{"coscheduling":{"scheduleTimeoutSeconds":10}}}}')
    await w.server.patch(await w.server.get(ClusterTrainingRuntime, ("", "rt")), timeout)
    await w.suspend(False)
    error = ServerError("the webhook of PodGroups is unreachable", code=500, reason="InternalError")
    w.server.refuse = lambda obj: error if isinstance(obj, PodGroup) else None
    with pytest.raises(ServerError):
        await w.reconcile()
    assert (await w.pod())["nodeSelector"] == {"pool": "a"}
    assert (await w.job_set())["spec"]["suspend"] is True
    w.server.refuse = lambda _obj: None
    assert await w.reconcile() == ["apply PodGroup", "apply JobSet"]
    assert (await w.job_set())["spec"]["suspend"] is False


async def test_what_others_write_on_the_job_set_stays() -> None:
    w = await suspended_world()
    live = await w.server.get(JobSet, KEY)
    live.metadata.labels = {"kueue.x-k8s.io/queue-name": "q"}
    live.metadata.annotations = {"theirs": "1"}
    await w.server.update(live, field_owner="kueue")
    assert await w.reconcile() == []
    await w.restart()
    await w.reconcile()
    await w.suspend(False)
    await w.reconcile()
    metadata = (await w.job_set())["metadata"]
    assert metadata["labels"] == {"kueue.x-k8s.io/queue-name": "q"}
    assert metadata["annotations"] == {"theirs": "1"}


@pytest.mark.parametrize("restart", [False, True], ids=["same process", "restarted"])
async def test_drift_of_a_suspended_job_set_is_undone(restart: bool) -> None:
    w = await suspended_world(labels={"team": "ours"})
    live = await w.server.get(JobSet, KEY)
    live.metadata.labels = {"team": "theirs"}
    live.spec.suspend = False
    await w.server.update(live, field_owner="admin")
    if restart:
        await w.restart()
    assert await w.reconcile() == ["apply JobSet"]
    made = await w.job_set()
    assert made["metadata"]["labels"] == {"team": "ours"}
    assert made["spec"]["suspend"] is True


@pytest.mark.parametrize("restart", [False, True], ids=["same process", "restarted"])
@pytest.mark.parametrize("policy", [GANG, VOLCANO], ids=["coscheduling", "volcano"])
async def test_what_runs_stays_as_it_is_whatever_is_edited(policy: dict[str, Any], restart: bool) -> None:
    w = await running_world(policy, annotations={"ours": "1"})
    kind: type[Any] = PodGroup if policy is GANG else VolcanoPodGroup
    live, group = await w.server.get(JobSet, KEY), await w.server.get(kind, KEY)
    live.metadata.annotations = {"ours": "2"}
    await w.server.update(live, field_owner="admin")
    group.spec.min_member = 1
    await w.server.update(group, field_owner="admin")
    await w.edit_image()
    await w.edit_nodes(7)
    if restart:
        await w.restart()
    assert await w.reconcile() == []
    assert await w.image() == "one"
    assert (await w.job_set())["metadata"]["annotations"] == {"ours": "2"}
    assert (await w.server.get(kind, KEY)).spec.min_member == 1


async def test_empty_maps_of_resources_are_sent_as_the_train_job_has_them() -> None:
    w = await world()
    empty = ResourceRequirements(limits={}, requests={})
    await w.train_job(lambda job: setattr(job.spec.trainer, "resources_per_node", empty))
    await w.reconcile()
    assert (await w.pod())["containers"][0]["resources"] == {"limits": {}, "requests": {}}


async def test_an_empty_map_of_the_pod_template_is_sent_as_it_lives() -> None:
    w = await built_world(labels={"a": "1"})
    live = await w.job_set()
    live["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"] = {}
    await w.server.update(JobSet.from_dict(live))
    await w.server.observe(active=1)
    await w.edit_image()
    await w.suspend(True)
    await w.reconcile()
    assert (await w.job_set())["spec"] == {**live["spec"], "suspend": True}


async def test_the_ports_of_an_init_container_stay() -> None:
    template = runtime().to_dict()["spec"]["template"]
    ports = [{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53, "protocol": "TCP"}]
    pod = template["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["initContainers"] = [{"name": "proxy", "image": "p", "restartPolicy": "Always", "ports": ports}]
    w = await world(PLAIN | {"template": template})
    assert await w.reconcile() == ["apply JobSet"]
    assert (await w.pod())["initContainers"][0]["ports"] == ports
