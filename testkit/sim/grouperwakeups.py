# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Short scripts without faults for the pod grouper: see :mod:`testkit.sim.wakeups`."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

import anyio
import msgspec
from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import Namespace, Pod
from controller_runtime.client import MERGE, raw_patch
from controller_runtime.machinery import Object
from controller_runtime.rest import PublishedSchema
from controller_runtime.simtest import Simulation

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.kai.v2alpha2 import PodGroup
from pkg.apis.scheduling import v1beta1
from pkg.constants import kai
from testkit.sim.managers import renew
from testkit.sim.objects import by_name, owned
from testkit.sim.wakeups import SOON, within
from testkit.sim.workloads import RayCluster, Workloads

Document = dict[str, Any]
_QUIET: Final = 40.0
PERIOD: Final = 60.0
"""Seconds after which the rules follow a replaced CRD."""
GROUPED: Final = {"grouped": "yes"}
"""The label of namespaces whose pods are grouped."""


class GrouperWakeups:
    """The scripts for one simulated cluster, whose pod grouper groups the pods of labelled namespaces."""

    def __init__(self, sim: Simulation, workloads: Workloads) -> None:
        self._sim = sim
        self._rng = random.Random(f"{sim.seed}/wakeups")
        self._workloads = workloads
        self._made = 0
        self._schema = PublishedSchema("v0.13", {})

    async def published(self, _known: PublishedSchema | None) -> PublishedSchema | None:
        """Return the schema of PodGroup."""
        return self._schema

    async def play(self, sim: Simulation) -> None:
        """Play all scripts, one after the other."""
        kinds: list[type[Object]] = [Job, JobSet, RayCluster]
        for script in (self.label_namespace, *([self.relabel, self.delete_group] * 3), self.scale):
            for kind in kinds if script in (self.relabel, self.delete_group) else [RayCluster]:
                sim.record("wakeups", f"{script.__name__} {kind.gvk.kind}")
                await script(kind)
                await renew(self._sim, after=_QUIET)
        for alone in (self.resize_gang, self.copy_pod_of_gang, self.replace_crd, self.change_durations):
            sim.record("wakeups", alone.__name__)
            await alone()
            await renew(self._sim, after=_QUIET)

    async def _create(self, kind: type[Object], labels: Document | None = None) -> Document:
        """Create a workload with pods, and wait until nothing happens any more."""
        self._made += 1
        metadata = {"namespace": "default", "name": f"w-{self._made}", "labels": labels or {}}
        spec = self._workloads.spec_of(kind, self._rng)
        made = await self._sim.client().create(kind.from_dict({"metadata": metadata, "spec": spec}))
        await anyio.sleep(_QUIET + self._rng.uniform(0.0, 30.0))
        return made.to_dict()

    def _groups(self, workload: Document) -> list[Document]:
        """Return the groups of a workload's pods."""
        uid = workload["metadata"]["uid"]
        return [each for each in self._sim.server.objects(PodGroup) if uid in each["metadata"]["name"]]

    async def relabel(self, kind: type[Object]) -> None:
        """Change the labels of a workload, which its groups have, too."""
        workload = await self._create(kind, {"team": "a"})
        body = raw_patch(MERGE, msgspec.json.encode({"metadata": {"labels": {"team": "b"}}}))
        await self._sim.client().patch(kind.from_dict(workload), body)
        await within(
            self._sim,
            lambda: (
                {(each["metadata"].get("labels") or {}).get("team") for each in self._groups(workload)}
                == {"b"}
            ),
            f"a change of the labels of a {kind.gvk.kind}",
        )

    async def scale(self, kind: type[Object]) -> None:
        """Change the size of a workload."""
        workload = await self._create(kind)
        groups = [{**each, "replicas": 5} for each in workload["spec"]["workerGroupSpecs"]]
        body = raw_patch(MERGE, msgspec.json.encode({"spec": {"workerGroupSpecs": groups}}))
        await self._sim.client().patch(kind.from_dict(workload), body)
        await within(
            self._sim,
            lambda: [each["spec"]["minMember"] for each in self._groups(workload)] == [1 + 5 * len(groups)],
            f"a change of the size of a {kind.gvk.kind}",
        )

    async def resize_gang(self) -> None:
        """Change the minimum of a gang of Kubernetes 1.37, whose pods have no owner."""
        client, metadata = self._sim.client(), {"namespace": "default", "name": "gang"}
        spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
        gang = await client.create(v1beta1.PodGroup.from_dict({"metadata": metadata, "spec": spec}))
        of_gang = {"schedulerName": kai.SCHEDULER_NAME, "schedulingGroup": {"podGroupName": gang.name}}
        for name in ("gang-0", "gang-1"):
            await client.create(Pod.from_dict({"metadata": {**metadata, "name": name}, "spec": of_gang}))
        await anyio.sleep(_QUIET + self._rng.uniform(0.0, 30.0))
        for count in (1, 2):
            body = {"spec": {"schedulingPolicy": {"gang": {"minCount": count}}}}
            await client.patch(gang, raw_patch(MERGE, msgspec.json.encode(body)))
            await within(
                self._sim,
                lambda count=count: (  # type: ignore[misc]  # mypy does not infer the type of the default
                    [each["spec"]["minMember"] for each in self._groups(gang.to_dict())] == [count]
                ),
                "a change of the minimum of a gang",
            )

    async def copy_pod_of_gang(self) -> None:
        """Create a pod of a gang from the YAML of a pod of another gang: the pod must leave the other group."""
        client, gangs, groups = self._sim.client(), [], list[str]()
        for name in ("first", "second"):
            metadata = {"namespace": "default", "name": name}
            spec = {"schedulingPolicy": {"gang": {"minCount": 1}}}
            gangs.append(
                await client.create(v1beta1.PodGroup.from_dict({"metadata": metadata, "spec": spec}))
            )
        for gang in gangs:
            copied = {kai.POD_GROUP_ANNOTATION_FOR_POD: groups[0]} if groups else {}
            named = {"namespace": "default", "name": f"{gang.name}-0", "annotations": copied}
            of_gang = {"schedulerName": kai.SCHEDULER_NAME, "schedulingGroup": {"podGroupName": gang.name}}
            pod = await client.create(Pod.from_dict({"metadata": named, "spec": of_gang}))

            def has_group(pod: Pod = pod, uid: str = gang.metadata.uid or "") -> bool:
                found = by_name(self._sim, Pod, pod.to_dict())
                assert found is not None
                groups[:] = [
                    found["metadata"].get("annotations", {}).get(kai.POD_GROUP_ANNOTATION_FOR_POD, "")
                ]
                return uid in groups[0]

            await within(self._sim, has_group, f"the creation of a pod of the {gang.name} gang")

    async def change_durations(self) -> None:
        """Set and change the durations in the annotations of a Job's pods, which the newer release knows."""
        durations = {
            kai.PREEMPTION_DELAY_KEY: "preemptionDelay",
            kai.STALENESS_GRACE_PERIOD_KEY: "stalenessGracePeriod",
        }
        workload = await self._create(Job)
        for key, field in durations.items():
            for minutes in ("5m", "10m"):
                body = raw_patch(MERGE, msgspec.json.encode({"metadata": {"annotations": {key: minutes}}}))
                for pod in owned(self._sim, Pod, workload):
                    await self._sim.client().patch(Pod.from_dict(pod), body)

                def follows(field: str = field, wanted: str = f"{minutes}0s") -> bool:
                    return {each["spec"].get(field) for each in self._groups(workload)} == {wanted}

                await within(self._sim, follows, f"a change of the annotation {key}")

    async def delete_group(self, kind: type[Object]) -> None:
        """Delete the groups of a workload."""
        workload = await self._create(kind)
        found = self._groups(workload)
        assert found
        for each in found:
            await self._sim.client().delete(PodGroup.from_dict(each))
        names = [each["metadata"]["name"] for each in found]
        await within(
            self._sim,
            lambda: [each["metadata"]["name"] for each in self._groups(workload)] == names,
            f"the deletion of the group of a {kind.gvk.kind}",
        )

    async def label_namespace(self, kind: type[Object]) -> None:
        """Label the namespace of a workload, so that its pods are to be grouped."""
        await self._label_namespace(None)
        workload = await self._create(kind)
        assert not self._groups(workload)
        await self._label_namespace("yes")
        await within(self._sim, self._is_grouped(workload), "a change of the labels of a namespace")

    async def replace_crd(self) -> None:
        """Replace the CRD of PodGroups by that of a newer release: new groups of JobSets have subgroups then."""
        workload = await self._create(JobSet)
        assert not any(each["spec"].get("subGroups") for each in self._groups(workload))
        fields: Document = {"minSubGroup": {}, "preemptionDelay": {}}
        self._schema = PublishedSchema("v0.17", {"spec": {"properties": fields}})
        await anyio.sleep(PERIOD + SOON)
        workload = await self._create(JobSet)
        groups = self._groups(workload)
        assert groups, "a JobSet has no group"
        assert all(each["spec"].get("subGroups") for each in groups), "the rules do not follow the CRD"

    def _is_grouped(self, workload: Document) -> Callable[[], bool]:
        def look() -> bool:
            pods = owned(self._sim, Pod, workload)
            marks = [
                kai.POD_GROUP_ANNOTATION_FOR_POD in (each["metadata"].get("annotations") or {})
                for each in pods
            ]
            return bool(marks) and all(marks)

        return look

    async def _label_namespace(self, value: str | None) -> None:
        namespace = by_name(self._sim, Namespace, {"metadata": {"name": "default"}})
        assert namespace is not None
        body = raw_patch(MERGE, msgspec.json.encode({"metadata": {"labels": dict.fromkeys(GROUPED, value)}}))
        await self._sim.client("admin").patch(Namespace.from_dict(namespace), body)
        await anyio.sleep(1.0)
