# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The manager is killed right after its k-th write of a scenario, for increasing k, and started again.

The scenario has 50 TrainJobs of two gang-scheduled runtimes, one of them with MPI; some are suspended. Without a crash
it takes ``total`` writes. The first writes are special (finalizers, informers that start late), so the manager is
killed after each of them, and after every ``FAULT_EVERY_K``-th of the others (5). ``FAULT_EVERY_K=1`` kills it after
each write and takes minutes. ``FAULT_FROM_K`` begins at a later k, to continue after a failure.

The k-th write takes effect, but its answer is lost; later writes never reach the server. The manager that has caught up
after one crash is killed in the next round, so each round costs one start.
"""

import difflib
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest
import yaml
from controller_runtime.apis.core.v1 import ConfigMap, Event, Secret
from controller_runtime.client import LiveClient
from controller_runtime.envtest import eventually
from controller_runtime.machinery import GVK, Object, unstructured

from pkg import shipped
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.schedulerplugins.v1alpha1 import PodGroup
from pkg.apis.trainer.v1alpha1 import TrainingRuntime, TrainJob
from testkit.builders import written_runtime, written_train_job

pytestmark = pytest.mark.fault
JOBS = 50
FIRST = 4
EVERY = int(os.environ.get("FAULT_EVERY_K", "5"))
BEGIN = int(os.environ.get("FAULT_FROM_K", "1"))
NAMESPACE = unstructured(GVK("", "v1", "Namespace"))
CHILDREN: tuple[type[Object], ...] = (JobSet, PodGroup, Secret, ConfigMap)
KINDS: tuple[type[Object], ...] = (TrainJob, TrainingRuntime, *CHILDREN)
_VOLATILE = ("uid", "resourceVersion", "creationTimestamp")
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

State = dict[str, dict[str, Any]]


class Crash:
    """Counts a namespace's writes through a proxy; kills the manager once write number ``last`` has taken effect."""

    def __init__(self, proxy: Any, namespace: str, kill: Callable[[], None], last: int | None) -> None:
        self.writes: list[Any] = []
        self.happened = False
        self._place = f"/namespaces/{namespace}/"
        self._kill = kill
        self._last = last
        proxy.hold, proxy.answered = self.hold, self.answered

    def hold(self, seen: Any) -> bool:
        if seen.method == "GET" or self._place not in seen.path or "/events" in seen.path:
            return False
        self.writes.append(seen)
        return self._last is not None and len(self.writes) > self._last

    def answered(self, seen: Any) -> None:
        if self._last is not None and not self.happened and seen in self.writes[self._last - 1 : self._last]:
            self.happened = True
            self._kill()


@pytest.fixture
def manager(proxy: Any, new_manager: Callable[..., Any]) -> Any:
    # The certificates' Secret would be one more write; integration/webhooks/test_certificates tests it.
    made = new_manager(proxy.url)
    made.start()
    return made


def runtimes(namespace: str) -> Iterator[TrainingRuntime]:
    for original in shipped.manifests("runtimes"):
        name = original["metadata"]["name"]
        if name in {"torch-distributed", "deepspeed-distributed"}:
            spec = {**original["spec"], "podGroupPolicy": {"coscheduling": {}}}
            yield written_runtime(namespace, name, **spec)


def train_jobs(namespace: str) -> Iterator[TrainJob]:
    for number in range(JOBS):
        runtime = "torch-distributed" if number % 5 else "deepspeed-distributed"
        yield written_train_job(
            namespace, runtime, name=f"job-{number}", suspend=number % 5 == 1, trainer={"numNodes": 2}
        )


async def begin(client: LiveClient, namespace: str) -> None:
    await client.create(NAMESPACE.from_dict({"metadata": {"name": namespace}}))
    for runtime in runtimes(namespace):
        await client.create(runtime)
    async with anyio.create_task_group() as tasks:
        for job in train_jobs(namespace):
            tasks.start_soon(client.create, job)


async def end(client: LiveClient, namespace: str) -> None:
    for kind in KINDS:
        await client.delete_all_of(kind, namespace=namespace)


def settled(wire: dict[str, Any], namespace: str) -> Any:
    """Remove the values that differ between runs from an object, and return it."""
    meta = wire["metadata"]
    for name in _VOLATILE:
        meta.pop(name, None)
    for owner in meta.get("ownerReferences", ()):
        del owner["uid"]
    meta["managedFields"] = sorted(
        ({k: v for k, v in entry.items() if k != "time"} for entry in meta["managedFields"]), key=str
    )
    for condition in wire.get("status", {}).get("conditions", ()):
        condition.pop("lastTransitionTime")
    if wire["kind"] == "Secret":
        wire["data"] = sorted(wire["data"])
    return _without(wire, namespace)


def _without(value: Any, namespace: str) -> Any:
    if isinstance(value, dict):
        return {_UID.sub("UID", key): _without(inner, namespace) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without(inner, namespace) for inner in value]
    return value.replace(namespace, "NAMESPACE") if isinstance(value, str) else value


async def look(client: LiveClient, namespace: str) -> tuple[State, int]:
    """Return the objects of the namespace, and how many children have no TrainJob."""
    state: State = {}
    uids, orphans = set(), 0
    for kind in KINDS:
        for each in await client.list(unstructured(kind.gvk), namespace=namespace):
            if kind is TrainJob:
                uids.add(each.metadata.uid)
            owners = [owner.uid for owner in each.metadata.owner_references or () if owner.controller]
            orphans += kind in CHILDREN and (len(owners) != 1 or owners[0] not in uids)
            state[f"{kind.gvk.kind}/{each.name}"] = settled(each.to_dict(), namespace)
    return state, orphans


def difference(got: State, want: State) -> str:
    """Return a diff of the first object that is not as it should be."""
    name = next(name for name in {**want, **got} if got.get(name) != want.get(name))
    wanted, found = (yaml.safe_dump(state.get(name)).splitlines() for state in (want, got))
    return "\n".join([name, *difflib.unified_diff(wanted, found, "wanted", "got", lineterm="")])


@pytest.fixture
async def reference(client: LiveClient, namespace: str, manager: Any, proxy: Any) -> tuple[State, int]:
    """Return the final objects without a crash, and the number of writes."""
    place = f"{namespace}-0"
    undisturbed = Crash(proxy, place, manager.kill, None)
    await begin(client, place)
    number = -1
    while len(undisturbed.writes) < 2 * JOBS or number != len(undisturbed.writes):
        number = len(undisturbed.writes)
        await anyio.sleep(1.5)
    state, orphans = await look(client, place)
    assert orphans == 0
    assert len(state) == JOBS + 2 + 2 * JOBS + 2 * JOBS // 5
    await end(client, place)
    return state, number


@pytest.mark.timeout(3600)
async def test_a_crash_after_any_write_leaves_the_same_end_state(
    client: LiveClient,
    namespace: str,
    manager: Any,
    proxy: Any,
    reference: tuple[State, int],
    figure: Any,
) -> None:
    want, total = reference
    chosen = [k for k in range(BEGIN, total + 1) if k <= FIRST or (k - FIRST) % EVERY == 0]
    differing = orphans = late = failed = 0
    slowest = 0.0
    for k in chosen:
        place = f"{namespace}-{k}"
        crash = Crash(proxy, place, manager.kill, k)
        await begin(client, place)

        async def over(place: str = place, crash: Crash = crash) -> bool:
            # The last writes may be missing, because two changes of a status may become one write.
            near = len(crash.writes) > 0.9 * total
            return crash.happened or (near and (await look(client, place))[0] == want)

        await eventually(over, timeout=60, interval=0.1, reason=f"the manager makes its {k} writes")
        late += not crash.happened
        if not crash.happened:
            manager.kill()
        Crash(proxy, place, manager.kill, None)
        before = manager.errors
        manager.start()
        restarted = anyio.current_time()
        got, orphaned = await look(client, place)
        with anyio.move_on_after(120):
            while got != want:
                await anyio.sleep(0.2)
                got, orphaned = await look(client, place)
        slowest = max(slowest, anyio.current_time() - restarted)
        differing += got != want
        assert manager.running, manager.log.read_text()[-2000:]
        assert got == want, f"after write {k}: {difference(got, want)}"
        orphans += orphaned
        assert await client.list(Event, namespace=place) == []
        failed += manager.errors - before
        await end(client, place)
    assert late <= 2, "the manager makes fewer writes than it did"
    figure(
        f"crash after write k, {len(chosen)} of {total}: end states that differ",
        differing,
        at_most=0,
        unit="",
    )
    figure("F22 crash: failed reconciles after the restarts", failed, at_most=0, unit="reconciles")
    figure("crash: children without a TrainJob", orphans, at_most=0, unit="objects")
    figure("crash: end state after the restart", slowest, at_most=60)
