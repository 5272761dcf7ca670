# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The rules for pod groups: each pod is in the group of its owners, in any order of events."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import anyio
from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.client import MERGE, raw_patch
from controller_runtime.machinery import Object
from controller_runtime.simtest import Event, Simulation

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.kai.v2alpha2 import PodGroup
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.constants import kai
from pkg.podgrouper.podgroup import OLDEST, Rules
from testkit.sim.objects import by_uid, controller, is_deleted
from testkit.sim.workloads import JOB_INDEX, NODE_GROUP, REPLICATED_JOB, Notebook, RayCluster

Document = dict[str, Any]
_OWNERS: dict[str, type[Object]] = {
    "Job": Job,
    "JobSet": JobSet,
    "TrainJob": TrainJob,
    "RayCluster": RayCluster,
    "Notebook": Notebook,
}
_REFUSED = 60.0
"""For this many seconds, an earlier read of an owner, or the refusal of such a read, may still have an effect."""
_QUIET = 70.0
_RECENT = 120.0
_MISSING_OWNER = re.compile(r"Owner resource with uid (\S+) not found")
_EXISTING_GROUP = re.compile(r'podgroups\S* "([^"]+)" already exists')


class Group(NamedTuple):
    """The group that a pod belongs to."""

    name: str
    members: int
    owner: str
    sub_group: str = ""


_UNSURE = 5.0
"""For this many seconds, a manager may not know that its own write has succeeded, because the answer was lost."""


class Denials(set[tuple[str, str, str]]):
    """The permissions that are revoked, and a record of those that were revoked until recently."""

    def __init__(self, sim: Simulation) -> None:
        super().__init__()
        self._sim = sim
        self._until: dict[str, float] = {}

    def discard(self, entry: Any) -> None:
        """Grant a permission again."""
        self._until[entry[2]] = self._sim.loop.time() + _REFUSED
        super().discard(entry)

    def concern(self, resources: set[str]) -> bool:
        """Return True if reads of one of the resources are denied, or were denied until recently."""
        late = {resource for resource, until in self._until.items() if until > self._sim.loop.time()}
        return bool(resources & (late | {entry[2] for entry in self}))


class Groups:
    """The rules, for the groups of a release of KAI-Scheduler."""

    def __init__(self, sim: Simulation, release: Rules = OLDEST) -> None:
        self._sim = sim
        self._whole = release is not OLDEST
        """True if all pods of a Job have one group, and a JobSet's group counts replicated jobs instead of pods."""
        self._denials = Denials(sim)
        sim.server.denied = self._denials
        self._names: set[str] = set()
        """The names of all groups that some pod may have had."""
        self._excused: set[str] = set()
        """Uids of pods that were grouped while an owner could not be read."""
        self._right_groups: dict[str, dict[str, float]] = {}
        """By pod uid, the groups that were right for the pod, each with the time at which it became right.

        Another group becomes right when an owner of the pod loses its own owner.
        """
        self._seen: dict[str, Document] = {}  # by uid, the last states of objects, also of deleted ones
        self._above: dict[str, set[str]] = {}
        """By uid, the uids of all owners that an object has had."""
        self._parted: dict[str, float] = {}
        """The times at which an object last lost an owner, by the owner's uid."""
        self._deleted: dict[str, float] = {}
        """The times at which groups were last deleted, by name."""
        self._groups_of_deleted_owners: set[str] = set()
        """Names of groups that were written after the deletion of their owner; they are garbage-collected."""
        self._marked: dict[str, float] = {}
        """The times at which the group annotations of pods last changed, by pod uid."""
        self._last = 0.0
        self._touches = 0
        self.resized: set[str] = set()
        """Names of groups whose size may be wrong until one of their pods changes."""

    def see(self, event: Event) -> None:
        """Check a change."""
        kind, metadata = event.table.properties.gvk.kind, event.document["metadata"]
        owners = {each["uid"] for each in metadata.get("ownerReferences") or ()}
        if kind not in ("Lease", "Event"):
            self._last = self._sim.loop.time()
            self._seen[metadata["uid"]] = event.document
            for uid in self._above.get(metadata["uid"], set()) - owners:
                self._parted.setdefault(uid, self._last)
            self._above.setdefault(metadata["uid"], set()).update(owners)
        if event.type == "DELETED":
            self._deleted[metadata["name"]] = self._sim.loop.time()
            return
        if kind == "Event":
            self._warning(event.document["message"])
        elif kind == "Pod":
            self._pod(event)
        elif kind in _OWNERS and controller(event.document) != controller(event.before or event.document):
            for pod in self._sim.server.objects(Pod):
                self._learn(pod, self._group_of(pod))
        elif kind == "PodGroup":
            name, kinds = metadata["name"], (*_OWNERS.values(), Pod)
            assert event.before or name in self._names, f"a group exists that no pod may belong to: {name}"
            if owners and not any(by_uid(self._sim, kind, uid) for kind in kinds for uid in owners):
                self._groups_of_deleted_owners.add(name)

    def _pod(self, event: Event) -> None:
        pod, wanted = event.document, self._group_of(event.document)
        self._learn(pod, wanted)
        before, now = _mark(event.before), _mark(pod)
        if now == before or now is None or event.before is None:
            return
        name = pod["metadata"]["name"]
        own = any(uid in now for uid in self._ancestors(pod["metadata"]["uid"]))
        assert own, f"a pod was given the group of owners that it never had: {name}: {now}"
        if wanted is None:
            return
        alone = f"pg-{name}-{pod['metadata']['uid']}"
        uid, time = pod["metadata"]["uid"], self._sim.loop.time()
        is_known = self._marked.get(uid, time) + _UNSURE < time
        self._marked[uid] = time
        groups = {each["metadata"]["name"] for each in self._sim.server.objects(PodGroup)}
        if not pod["metadata"].get("ownerReferences") and before in groups and is_known:
            assert now != alone, f"a pod that was released by its owners is grouped again: {name}: {now}"
        known = self._right_groups[pod["metadata"]["uid"]]
        if now != wanted.name and now in known and self._sim.loop.time() < known[wanted.name] + _REFUSED:
            return  # one of the pod's owners was orphaned while the owners were read
        taken = before == wanted.name and before in groups  # a group is garbage-collected with its owner
        assert not taken, f"a pod was taken out of its group: {name}: {now}, not {before}"
        # A manager may not know yet that a person has deleted the group; it will create the group again.
        was_just_deleted = time - self._deleted.get(now, -_RECENT) < _RECENT
        assert now in groups or was_just_deleted, (
            f"a pod was given a group that does not exist: {name}: {now}"
        )
        # A replica that is behind may still show an owner to the grouper of a pod that was created later.
        parted = {
            owner for owner in self._ancestors(uid) if time < self._parted.get(owner, -_REFUSED) + _REFUSED
        }
        if now != wanted.name and not any(owner in now for owner in parted):
            resources = {str(each.resource.group_resource) for each in self._tables(pod)}
            assert self._denials.concern(resources), (
                f"a pod was given the wrong group: {name}: {now}, not {wanted.name}"
            )
            assert now in self._groups_of_partial_owners(pod), (
                f"a pod was given a stranger's group: {name}: {now}"
            )
            self._excused.add(pod["metadata"]["uid"])

    def _learn(self, pod: Document, wanted: Group | None) -> None:
        """Record the groups that a pod may have now."""
        before = wanted or self._group_of(pod, past=True)
        self._names |= set(self._groups_of_partial_owners(pod)) | ({before.name} if before else set())
        if wanted is not None:
            known = self._right_groups.setdefault(pod["metadata"]["uid"], {})
            if next(reversed(known), "") != wanted.name:
                known.pop(wanted.name, None)
                known[wanted.name] = self._sim.loop.time()

    def _ancestors(self, uid: str) -> Iterator[str]:
        """Yield the uids of an object, of all owners that it has had, and of their owners."""
        yield uid
        for owner in sorted(self._above.get(uid, ())):
            yield from self._ancestors(owner)

    def _warning(self, message: str) -> None:
        """Check that an event does not report an existing owner as missing, or an existing group as an error."""
        if (found := _MISSING_OWNER.search(message)) is not None:
            exists = any(by_uid(self._sim, kind, found[1]) for kind in _OWNERS.values())
            assert not exists, f"an owner that exists was not found: {message}"
        if (found := _EXISTING_GROUP.search(message)) is not None:
            gone = self._sim.loop.time() - self._deleted.get(found[1], -_RECENT) < _RECENT
            assert gone, f"a group that exists is reported as an error: {message}"

    def _tables(self, pod: Document) -> Iterator[Any]:
        for owner in self._walk(pod):
            yield self._sim.server.table(_OWNERS[owner["kind"]])

    def _walk(self, pod: Document, *, past: bool = False) -> Iterator[Document]:
        """Yield the references to owners, nearest first.

        The last one refers to an owner that has no owner itself, or that does not exist. With ``past``, owners that
        were deleted count as existing.
        """
        document: Document | None = pod
        while document is not None and (reference := controller(document)) is not None:
            yield reference
            document = self._owner(reference, past=past)

    def _owner(self, reference: Document, *, past: bool) -> Document | None:
        kind, uid = _OWNERS[reference["kind"]], reference["uid"]
        return self._seen.get(uid) if past else by_uid(self._sim, kind, uid)

    def _groups_of_partial_owners(self, pod: Document) -> Iterator[str]:
        """Yield the names of the groups that a pod may get while not all of its owners can be read."""
        name = pod["metadata"]["name"]
        yield f"pg-{name}-{pod['metadata']['uid']}"
        for reference in self._walk(pod):
            if reference["kind"] == "Job":
                yield f"pg-{reference['name'] if self._whole else name}-{reference['uid']}"

    def _group_of(self, pod: Document, *, past: bool = False) -> Group | None:
        """Return the group that follows from all owners of a pod.

        Return None if one of them does not exist. With ``past``, owners that were deleted count as existing.
        """
        chain = [pod]
        for reference in self._walk(pod, past=past):
            if (owner := self._owner(reference, past=past)) is None:
                return None
            chain.append(owner)
        kinds = ["Pod", *(each["kind"] for each in self._walk(pod, past=past))]
        if kinds[-1] == "TrainJob":
            kinds.pop()
            chain.pop()
        top, name = chain[-1], pod["metadata"]["name"]
        uid = top["metadata"]["uid"]
        base = f"pg-{top['metadata']['name']}-{uid}"
        if kinds[-1] == "Job":
            return Group(base if self._whole else f"pg-{name}-{uid}", 1, uid)
        if kinds[-1] == "JobSet":
            return (_tree_of_job_set if self._whole else _of_job_set)(pod, top, base)
        if kinds[-1] == "RayCluster":
            groups = {each["groupName"]: each["replicas"] for each in top["spec"]["workerGroupSpecs"]}
            own = pod["metadata"]["labels"].get(NODE_GROUP, "")
            return Group(base, 1 + sum(groups.values()), uid, own)
        return Group(base, 1, uid)

    async def check(self, sim: Simulation) -> None:
        """Check the groups of a cluster at rest; then touch each pod, and check the groups exactly."""
        await self._rest(sim)
        for pod in sim.server.objects(Pod):
            if pod["metadata"]["uid"] not in self._excused:
                self._check_pod(sim, pod, exactly=False, at_rest=True)
        self._touches += 1
        for pod in sim.server.objects(Pod):
            body = b'{"metadata":{"annotations":{"example.com/touched":"%d"}}}' % self._touches
            await sim.client().patch(Pod.from_dict(pod), raw_patch(MERGE, body))
        await self._rest(sim)
        for pod in sim.server.objects(Pod):
            self._check_pod(sim, pod, exactly=True)
        rows = [row for table in sim.server.tables.values() for row in table.rows.values()]
        uids = {row.document["metadata"]["uid"] for row in rows}
        for group in sim.server.objects(PodGroup):
            for owner in group["metadata"].get("ownerReferences") or ():
                assert owner["uid"] in uids, f"a group outlived its owner: {group['metadata']['name']}"
        if sim.failures:
            raise sim.failures[0]

    async def problem(self) -> str | None:
        """Return a text about the first pod that is not in its group, or None if there is no such pod."""
        try:
            for pod in self._sim.server.objects(Pod):
                self._check_pod(self._sim, pod, exactly=False)
        except AssertionError as error:
            return str(error)
        return None

    def _check_pod(self, sim: Simulation, pod: Document, *, exactly: bool, at_rest: bool = False) -> None:
        """Check the group of a pod. At rest, edits of owners have reached the group without an event of a pod."""
        ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        wanted = self._group_of(pod)
        if ended or is_deleted(pod) or wanted is None:
            return
        metadata = pod["metadata"]
        name, grouped = metadata["name"], _mark(pod)
        if not metadata.get("ownerReferences") and grouped is not None and grouped != wanted.name:
            # The pod was orphaned after it was grouped, or created again from its own YAML.
            exists = any(each["metadata"]["name"] == grouped for each in sim.server.objects(PodGroup))
            dead = grouped.startswith(f"pg-{name}-0") and not exists
            assert not dead or not at_rest, f"a pod names a dead group of its own: {name}: {grouped}"
            return
        if not exactly and grouped != wanted.name and grouped in self._right_groups.get(metadata["uid"], ()):
            groups = {each["metadata"]["name"] for each in sim.server.objects(PodGroup)}
            assert grouped in groups | self._groups_of_deleted_owners, (
                f"a pod is in a group that does not exist: {name}: {grouped}"
            )
            return
        assert grouped == wanted.name, f"a pod is not in its group: {name}: {grouped}, not {wanted.name}"
        sub_group = (metadata.get("labels") or {}).get(kai.SUB_GROUP_LABEL_KEY, "")
        # As in upstream, a pod of a group without subgroups keeps the label of an earlier subgroup.
        assert sub_group == wanted.sub_group or not wanted.sub_group, (
            f"a pod is not in its subgroup: {name}: {sub_group}"
        )
        found = [each for each in sim.server.objects(PodGroup) if each["metadata"]["name"] == grouped]
        assert found, f"the group of a pod does not exist: {grouped}"
        owner = (found[0]["metadata"].get("ownerReferences") or [{"uid": ""}])[0]
        exactly = exactly and bool(
            metadata.get("ownerReferences")
        )  # a pod without owners keeps an existing group
        assert not exactly or owner["uid"] == wanted.owner, f"a group has another owner: {grouped}"
        members = found[0]["spec"].get("minMember", found[0]["spec"].get("minSubGroup"))
        is_sure = exactly or (at_rest and grouped not in self.resized)
        assert not is_sure or members == wanted.members, (
            f"a group has the wrong size: {grouped}: {members}, not {wanted.members}"
        )

    async def _rest(self, sim: Simulation) -> None:
        until, self._last = sim.loop.time() + 1800.0, sim.loop.time()
        while sim.loop.time() < self._last + _QUIET:
            await anyio.sleep(1.0)
            assert sim.loop.time() < until, "the cluster does not come to rest"


def _of_job_set(pod: Document, job_set: Document, base: str) -> Group:
    sizes = {
        each["name"]: each["template"]["spec"].get("parallelism") or 1
        for each in job_set["spec"]["replicatedJobs"]
    }
    uid, own = job_set["metadata"]["uid"], pod["metadata"]["labels"][REPLICATED_JOB]
    if job_set["spec"]["startupPolicy"]["startupPolicyOrder"] == "InOrder":
        return Group(f"{base}-{own}", sizes[own], uid)
    return Group(base, sum(sizes.values()), uid)


def _tree_of_job_set(pod: Document, job_set: Document, base: str) -> Group:
    """Return the group of all replicated jobs, each of which has a subgroup for each of its replicas."""
    own, spec = pod["metadata"]["labels"], job_set["spec"]
    required = 1 if spec["startupPolicy"]["startupPolicyOrder"] == "InOrder" else len(spec["replicatedJobs"])
    replica = f"{own[REPLICATED_JOB]}-replica-{own[JOB_INDEX]}"
    return Group(base, required, job_set["metadata"]["uid"], replica)


def _mark(pod: Document | None) -> str | None:
    annotations = ((pod or {}).get("metadata") or {}).get("annotations") or {}
    found: str | None = annotations.get(kai.POD_GROUP_ANNOTATION_FOR_POD)
    return found
