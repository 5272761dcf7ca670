# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""TrainJobs that are suspended, moved and resumed quickly, or while no manager runs: they run with the last spec.

Scripts of users' actions run twice. In the second run the leader is killed before each action, and no manager leads
during it; the webhooks are served by another replica, as in a real cluster.
"""

import json
import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import anyio
import pytest
import yaml
from controller_runtime.apis.core.v1 import ConfigMap, Event, Secret
from controller_runtime.client import MERGE, LiveClient, ignore_not_found, raw_patch
from controller_runtime.envtest import consistently, eventually

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainingRuntime, TrainJob
from pkg.util import trainjob
from testkit.sim import script as actions
from testkit.sim.script import Action

pytestmark = pytest.mark.integration

AdmittingManager = Callable[..., AbstractAsyncContextManager[None]]
NAMES = [f"job-{number}" for number in range(20)]
RUNTIME: dict[str, Any] = {
    "name": "node",
    "template": {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"template": {"spec": {"containers": [{"name": "node", "image": "busybox"}]}}},
    },
}


class Jobs:
    """The TrainJobs of a namespace, and their runtime."""

    def __init__(self, client: LiveClient, namespace: str, *names: str) -> None:
        self._client = client
        self._namespace = namespace
        self._names = names

    async def create(self) -> None:
        spec = {"mlPolicy": {"torch": {}}, "template": {"spec": {"replicatedJobs": [RUNTIME]}}}
        metadata = {"name": "runtime", "namespace": self._namespace}
        await self._client.create(TrainingRuntime.from_dict({"metadata": metadata, "spec": spec}))
        for name in self._names:
            made = {"runtimeRef": {"name": "runtime", "kind": "TrainingRuntime"}, "trainer": {"image": "one"}}
            await self._client.create(
                TrainJob.from_dict({"metadata": {**metadata, "name": name}, "spec": made})
            )

    async def change(self, name: str, **spec: Any) -> None:
        target = TrainJob.from_dict({"metadata": {"name": name, "namespace": self._namespace}})
        await self._client.patch(target, raw_patch(MERGE, json.dumps({"spec": spec}).encode()))

    async def move(self, name: str) -> None:
        override = {"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"flavor": "spot"}}}
        await self.change(name, suspend=True, podTemplateOverrides=[override])
        await self.change(name, trainer={"image": "two"})
        await self.change(name, suspend=False)

    async def run(self, image: str, selector: dict[str, str] | None) -> bool:
        """Return True if every JobSet runs with this spec, and no note of a suspension is left."""
        noted = [
            trainjob.suspension_note(each)
            for each in await self._client.list(TrainJob, namespace=self._namespace)
        ]
        found = {each.name: each for each in await self._client.list(JobSet, namespace=self._namespace)}
        assert found.keys() == {*self._names}
        jobs = [(each.spec.replicated_jobs or [])[0] for each in found.values() if not each.spec.suspend]
        pods = [job.template.spec.template.spec for job in jobs]
        states = [((pod.containers or [])[0].image, pod.node_selector) for pod in pods]
        return states == [(image, selector)] * len(self._names) and not any(noted)


async def test_the_pods_follow_the_last_placement(
    admitting_manager: AdmittingManager, live_client: LiveClient, namespace: str
) -> None:
    jobs = Jobs(live_client, namespace, *NAMES)
    async with admitting_manager():
        await jobs.create()
        await eventually(lambda: jobs.run("one", None), timeout=30, interval=1, reason="the JobSets run")
        async with anyio.create_task_group() as tasks:
            for name in NAMES:
                tasks.start_soon(jobs.move, name)
        spot = {"flavor": "spot"}
        await eventually(
            lambda: jobs.run("two", spot),
            timeout=30,
            interval=1,
            reason="the JobSets run where the TrainJobs were moved",
        )


@pytest.mark.parametrize("mutating", [True, False], ids=["noted", "not noted"])
async def test_a_job_that_was_moved_while_no_manager_led(
    mutating: bool,
    admitting_manager: AdmittingManager,
    start_manager: Callable[[], Any],
    live_client: LiveClient,
    namespace: str,
) -> None:
    """A replica that serves webhooks notes the suspension.

    Without the mutating webhook, the pods continue to run and an event reports that.
    """
    jobs = Jobs(live_client, namespace, "job")
    async with AsyncExitStack() as replica:
        if mutating:
            await replica.enter_async_context(admitting_manager("--controllers="))
        leader = start_manager()
        await jobs.create()
        await eventually(lambda: jobs.run("one", None), timeout=30, interval=1, reason="the JobSet runs")
        leader.kill()
        await jobs.move("job")
        start_manager()

        async def reported() -> bool:
            events = await live_client.list(Event, namespace=namespace)
            return [(each.type, each.reason) for each in events] == [("Warning", "JobSetNotFollowing")]

        if mutating:
            spot = {"flavor": "spot"}
            await eventually(
                lambda: jobs.run("two", spot), timeout=30, interval=1, reason="the JobSet follows"
            )
        else:
            await eventually(reported, timeout=30, reason="an event reports it")
            await consistently(lambda: jobs.run("one", None), reason="its pods run on")


KINDS = (TrainJob, JobSet, TrainingRuntime, ConfigMap, Secret)
CHILDREN = (JobSet, ConfigMap, Secret)
REFERENCE = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "held"}
CONDITION = {"reason": "any", "message": "any", "lastTransitionTime": "2026-01-01T00:00:00Z"}
State = dict[str, Any]


def moved() -> list[list[Action]]:
    return actions.moves(1)


def completed() -> list[list[Action]]:
    """Return the actions of a TrainJob whose JobSet completes and is deleted, as by its TTL."""
    status = {"conditions": [{**CONDITION, "type": "Completed", "status": "True"}]}
    return [
        [Action("create", "first", {"runtimeRef": REFERENCE})],
        [Action("status", "first", {**status, "terminalState": "Completed"}, kind=JobSet)],
        [Action("delete", "first", {}, "Background", JobSet)],
        [Action("patch", "held", {"mlPolicy": {"numNodes": 2}}, kind=TrainingRuntime)],
        [Action("delete", "first", {}, "Background")],
        [Action("create", "first", {"runtimeRef": REFERENCE})],
    ]


def edited_runtime() -> list[list[Action]]:
    """Return the actions of a TrainJob whose runtime changes while it is suspended, and while it runs."""
    sizes = [
        Action("patch", "held", {"mlPolicy": {"numNodes": size}}, kind=TrainingRuntime) for size in (2, 3, 4)
    ]
    suspend, resume = (Action("patch", "first", {"suspend": each}) for each in (True, False))
    return [
        [Action("create", "first", {"runtimeRef": REFERENCE, "suspend": True})],
        [sizes[0]],
        [Action("patch", "first", {"trainer": {"image": "two"}})],
        [resume],
        [sizes[1]],
        [suspend],
        [sizes[2], resume],
    ]


class Lives:
    """Runs a script in a namespace, with a simulated garbage collector and a simulated controller of JobSet."""

    def __init__(self, client: LiveClient, namespace: str, start: Callable[[], Any]) -> None:
        self._client = client
        self._namespace = namespace
        self._start = start
        self._leader = start()

    async def live(self, bursts: list[list[Action]], *, killed: bool) -> list[State]:
        """Return the objects after each burst; they and their runtimes are deleted at the end."""
        rng = random.Random(len(bursts))
        states = []
        for runtime in actions.runtimes(self._namespace):
            await self._client.create(runtime)
        for burst in bursts:
            for action in burst:
                if killed:
                    self._leader.kill()
                await actions.perform(self._client, self._namespace, action)
                if killed:
                    self._leader = self._start()
                    await anyio.sleep(rng.random() * 3)  # kill it before it leads, or during its work
            states.append(await self._at_rest())
        for kind in (TrainJob, TrainingRuntime):
            await self._client.delete_all_of(kind, namespace=self._namespace)
        await eventually(self._is_empty, timeout=60, reason="every object of this run is deleted")
        return states

    async def _at_rest(self) -> State:
        """Return the objects once a manager has reconciled a TrainJob that is created last, and nothing changes."""
        await self._collect()
        plain = {"runtimeRef": {**REFERENCE, "name": "plain"}, "suspend": True}
        await actions.perform(self._client, self._namespace, Action("create", "fence", plain))
        key = (self._namespace, "fence")
        await eventually(lambda: self._client.get(JobSet, key), timeout=60, reason="a manager leads")
        await actions.perform(self._client, self._namespace, Action("delete", "fence", {}, "Background"))
        found: State = {}

        async def unchanged() -> bool:
            nonlocal found
            await self._collect()
            await self._observe()
            before, found = found, await self._objects()
            return found == before

        await eventually(unchanged, timeout=60, interval=2, reason="the objects do not change any more")
        return found

    async def _objects(self) -> State:
        """Return the parts of the objects that have to be equal: no counts of writes, and no conditions that are False.

        The runtime of the last TrainJob is left out, because that may be deleted before the runtime has its finalizer.
        """
        found: State = {}
        for kind in KINDS:
            for each in await self._client.list(kind, namespace=self._namespace):
                each.metadata.generation = None
                document = {} if kind is Secret else each.to_dict()
                status = document.pop("status", {})
                held = [one for one in status.get("conditions", ()) if one["status"] == "True"]
                document["status"] = {**status, "conditions": held}
                if text := document.get("data", {}).get("runtime"):
                    document["data"] = yaml.safe_load(text)
                found[f"{kind.gvk.kind} {each.name}"] = actions.equal_part(document)
        found.pop("TrainingRuntime plain", None)
        return found

    async def _collect(self) -> None:
        """Delete the children of TrainJobs that no longer exist."""
        jobs = await self._client.list(TrainJob, namespace=self._namespace)
        uids = {each.metadata.uid for each in jobs}
        for kind in CHILDREN:
            for each in await self._client.list(kind, namespace=self._namespace):
                owners = each.metadata.owner_references or ()
                if owners and uids.isdisjoint(owner.uid for owner in owners):
                    with ignore_not_found(each):
                        await self._client.delete(each)

    async def _observe(self) -> None:
        """Write the condition Suspended, True or False, of each JobSet that has not ended."""
        for each in await self._client.list(JobSet, namespace=self._namespace):
            if all(condition.type == "Suspended" for condition in each.status.conditions or ()):
                suspended = {**CONDITION, "type": "Suspended", "status": str(bool(each.spec.suspend))}
                body = json.dumps({"status": {"conditions": [suspended]}}).encode()
                with ignore_not_found(each):
                    await self._client.status.patch(each, raw_patch(MERGE, body))

    async def _is_empty(self) -> bool:
        await self._collect()
        return not any(
            key.startswith(("TrainJob", "JobSet", "TrainingRuntime")) for key in await self._objects()
        )


@pytest.mark.slow
@pytest.mark.timeout(900)  # on a busy machine it takes several times as long
@pytest.mark.parametrize("script", [moved, completed, edited_runtime])
@pytest.mark.parametrize("profile", ["2.1", "2.3"])
async def test_a_leader_that_is_killed_between_the_steps_leaves_the_same_objects(
    profile: str,
    script: Callable[[], list[list[Action]]],
    admitting_manager: AdmittingManager,
    start_manager: Callable[..., Any],
    live_client: LiveClient,
    namespace: str,
) -> None:
    bursts = script()
    async with admitting_manager("--controllers=", version=profile):
        lives = Lives(live_client, namespace, lambda: start_manager(version=profile))
        wanted = await lives.live(bursts, killed=False)
        found = await lives.live(bursts, killed=True)
    for number, (left, right) in enumerate(zip(found, wanted, strict=True)):
        differ = {
            key: {"killed": left.get(key), "not": right.get(key)}
            for key in left | right
            if left.get(key) != right.get(key)
        }
        assert not differ, f"after {bursts[: number + 1]}: {json.dumps(differ)}"
