# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The reconciler of pods that run as local processes: real processes, a client in memory."""

import signal
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
from controller_runtime import reconcile
from controller_runtime.apis.coordination.v1 import Lease
from controller_runtime.apis.core.v1 import ContainerStateTerminated, Node, Pod
from controller_runtime.client import STRATEGIC, interceptor, raw_patch
from controller_runtime.envtest import eventually
from controller_runtime.fake import FakeClient
from controller_runtime.machinery.errors import NotFoundError, ServerError
from testkit.local_pods import UID, container, new_pod, until

from trainerctl.localcluster.nodes import NodeShape, node
from trainerctl.localcluster.podlogs import LogError, RemovedPods
from trainerctl.localcluster.processes import logs, process
from trainerctl.localcluster.processes.kubelet import Kubelet
from trainerctl.localcluster.processes.logserver import ProcessLogs
from trainerctl.localcluster.processes.nodes import LEASES, Nodes
from trainerctl.localcluster.processes.settings import BackOff, Settings

pytestmark = pytest.mark.slow

REQUEST = reconcile.Request("team", "web")


class _World:
    """A kubelet that reconciles whenever a runner reports a change."""

    def __init__(self, client: Any, settings: Settings) -> None:
        self.client = client
        self.removed = RemovedPods(settings.directory / "removed")
        self.kubelet = Kubelet(client, settings, {"node-0"}.__contains__, self.removed)
        self.logs = ProcessLogs(client, settings, self.kubelet.runner)
        self._requests: set[reconcile.Request] = set()

    def add(self, request: reconcile.Request) -> None:
        self._requests.add(request)

    async def work(self) -> None:
        while True:
            while self._requests:
                request = self._requests.pop()
                try:
                    await self.kubelet.reconcile(request)
                except ServerError:
                    self._requests.add(request)
                    break
            await anyio.sleep(0.01)

    async def until(self, condition: Callable[[Pod], object], reason: str) -> Pod:
        async def holds() -> bool:
            return bool(condition(await self.client.get(Pod, REQUEST)))

        await eventually(holds, timeout=60, reason=reason)
        found: Pod = await self.client.get(Pod, REQUEST)
        return found

    async def run_has_ended(self) -> None:
        def ended() -> bool:
            runner = self.kubelet.runner("team", "web")
            return runner is not None and runner.finished.is_set()

        await until(ended, "the containers have ended")

    async def log(self, query: str = "", container: str = "main") -> bytes:
        return b"".join(
            [each async for each in self.logs.log(f"/containerLogs/team/web/{container}?{query}")]
        )


@asynccontextmanager
async def _world(client: Any, settings: Settings) -> AsyncIterator[_World]:
    world = _World(client, settings)
    async with anyio.create_task_group() as tasks, world.kubelet.running():
        tasks.start_soon(world.kubelet.feed, world)  # type: ignore[arg-type] # only add is used
        tasks.start_soon(world.work)
        await anyio.lowlevel.checkpoint()
        world.add(REQUEST)
        yield world
        tasks.cancel_scope.cancel()


def _pod(*command: str, uid: str = UID, status: dict[str, Any] | None = None, **spec: Any) -> Pod:
    pod = new_pod(container(*command), **{"nodeName": "node-0", **spec}).to_dict()
    pod["metadata"]["uid"] = uid
    return Pod.from_dict({**pod, "status": {"phase": "Pending", **(status or {})}})


def _end(pod: Pod) -> ContainerStateTerminated:
    """Return how the only container of a pod has ended."""
    (status,) = pod.status.container_statuses or []
    assert status.state is not None
    assert status.state.terminated is not None
    return status.state.terminated


async def test_a_pod_runs_and_its_end_is_written(settings: Settings) -> None:
    own = {"type": "Own", "status": "True"}
    client = FakeClient(_pod("sh", "-c", "echo hi; exit 3", status={"conditions": [own]}))
    async with _world(client, settings) as world:
        pod = await world.until(lambda pod: pod.status.phase == "Failed", "the pod has failed")
        assert await world.log() == b"hi\n"
    assert _end(pod).exit_code == 3
    conditions = {each.type: each.status for each in pod.status.conditions or []}
    assert conditions["Own"] == "True", "a condition of another writer stays"
    assert conditions["Ready"] == "False"
    writes = [call for call in client.calls if call.verb == "patch"]
    assert len(writes) <= 5, writes


async def test_a_pod_waits_with_an_event_while_the_disk_is_full(
    settings: Settings, events: list[tuple[str, str]]
) -> None:
    settings.hosts.path("team").symlink_to("/dev/full")
    async with _world(FakeClient(_pod("true")), settings) as world:
        await until(lambda: bool(events), "it is reported")
        settings.hosts.path("team").unlink()
        await world.until(lambda pod: pod.status.phase == "Succeeded", "the pod has ended")
    assert events == [("FailedMount", "MountVolume.SetUp failed: [Errno 28] No space left on device")]


async def test_a_launcher_is_refused_with_a_reason(settings: Settings, events: list[tuple[str, str]]) -> None:
    async with _world(FakeClient(_pod("mpirun", "-n", "2", "x")), settings) as world:
        pod = await world.until(lambda pod: bool(pod.status.container_statuses), "the pod is refused")
        assert world.kubelet.runner("team", "web") is None
    (found,) = pod.status.container_statuses or []
    assert found.state is not None
    assert found.state.waiting is not None
    assert found.state.waiting.reason == "ProcessesUnsupported"
    assert "mpirun" in (found.state.waiting.message or "")
    assert [reason for reason, _ in events] == ["ProcessesUnsupported"]


async def test_pods_of_other_nodes_are_left_alone(settings: Settings) -> None:
    client = FakeClient(_pod("true", nodeName="node-9"))
    async with _world(client, settings) as world:
        await anyio.sleep(0.2)
        assert world.kubelet.runner("team", "web") is None
    assert not [call for call in client.calls if call.verb == "patch"]


async def test_a_deleted_pod_is_stopped_and_then_removed(settings: Settings) -> None:
    pod = _pod(
        "sh",
        "-c",
        "trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done",
        terminationGracePeriodSeconds=30,
    )
    pod.metadata.finalizers = ["batch.kubernetes.io/job-tracking"]
    client = FakeClient(pod)
    async with _world(client, settings) as world:
        await world.until(lambda pod: pod.status.phase == "Running", "the pod runs")

        async def written() -> bool:
            return await world.log() == b"up\n"

        await eventually(written, timeout=30, reason="it writes")
        await client.delete(pod, grace_period_seconds=30)
        world.add(REQUEST)
        pod = await world.until(lambda pod: pod.status.phase == "Succeeded", "the pod has ended")
        removed = pod.deep_copy()
        removed.metadata.finalizers = []
        await client.update(removed)
        world.add(REQUEST)
        await until(lambda: not settings.pod(UID).exists(), "its folder is removed")


@pytest.mark.parametrize(("policy", "message"), [("FallbackToLogsOnError", "no shard 7"), ("File", "")])
async def test_the_message_of_a_failed_container_is_the_end_of_its_log_if_the_policy_says_so(
    settings: Settings, policy: str, message: str
) -> None:
    pod = _pod("sh", "-c", "echo no shard 7; exit 3")
    (pod.spec.containers or [])[0].termination_message_policy = policy
    async with _world(FakeClient(pod), settings) as world:
        found = await world.until(lambda pod: pod.status.phase == "Failed", "the pod has failed")
        assert (_end(found).message or "").strip() == message


async def test_the_log_and_the_end_of_a_removed_pod_are_kept(settings: Settings) -> None:
    pod = _pod("sh", "-c", "echo no shard 7; exit 3")
    pod.metadata.labels = {"jobset.sigs.k8s.io/jobset-name": "llama"}
    client = FakeClient(pod)
    async with _world(client, settings) as world:
        await world.until(lambda pod: pod.status.phase == "Failed", "the pod has failed")
        await client.delete(pod, grace_period_seconds=0)
        world.add(REQUEST)
        await until(lambda: bool(world.removed.of("team", "llama")), "the pod is kept")
        (found,) = world.removed.of("team", "llama")
        (status,) = found.maps("status", "containerStatuses")
        assert status["state"]["terminated"]["exitCode"] == 3
        assert logs.tail(world.removed.logs(UID, "main") / "0", 5) == b"no shard 7\n"


async def test_the_last_phase_of_a_deleted_pod_is_written_before_it_is_removed(settings: Settings) -> None:
    async def slow(*args: Any, **options: Any) -> Any:
        await anyio.sleep(0.3)  # the pod ends meanwhile
        return await client.status.patch(*args[-2:], **options)

    client = FakeClient(_pod("sleep", "1357"))
    wrapped = interceptor.wrap(client, interceptor.Funcs(subresource_patch=slow))
    async with _world(wrapped, settings) as world:
        pod = await world.until(lambda pod: pod.status.phase == "Running", "the pod runs")
        # The node controller writes this; the kubelet then writes its own status again.
        ready = b'{"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}'
        await client.status.patch(pod, raw_patch(STRATEGIC, ready))
        await client.delete(pod, grace_period_seconds=1)
        world.add(REQUEST)

        async def gone() -> bool:
            return not await client.list(Pod)

        await eventually(gone, timeout=30, reason="it is removed")
    written = [call.body for call in client.calls if call.verb == "patch" and call.subresource == "status"]
    assert isinstance(written[-1], dict)
    assert written[-1]["status"]["phase"] == "Failed"


async def test_a_pod_that_is_deleted_before_its_kubelet_starts_ends_without_running(
    settings: Settings,
) -> None:
    pod = _pod("sh", "-c", "echo ran")
    pod.metadata.finalizers = ["batch.kubernetes.io/job-tracking"]
    client = FakeClient(pod)
    await client.delete(pod, grace_period_seconds=30)
    async with _world(client, settings) as world:
        pod = await world.until(lambda pod: pod.status.phase == "Failed", "the pod has ended")
        with pytest.raises(LogError, match="waiting to start"):
            await world.log()
    assert _end(pod).message == "The container was stopped before it started"


async def test_a_pod_that_vanishes_ends_and_another_of_its_name_runs(settings: Settings) -> None:
    client = FakeClient(_pod("sleep", "1357"))
    async with _world(client, settings) as world:
        await world.until(lambda pod: pod.status.phase == "Running", "the pod runs")
        first = world.kubelet.runner("team", "web")
        await client.delete(_pod("sleep"), grace_period_seconds=0)
        with pytest.raises(NotFoundError):
            await client.get(Pod, REQUEST)
        await client.create(_pod("sh", "-c", "echo second", uid=str(uuid.uuid4())))
        world.add(REQUEST)
        await world.until(lambda pod: pod.status.phase == "Succeeded", "the second pod has ended")
        assert first is not None
        assert first.finished.is_set()
        assert await world.log() == b"second\n"


async def test_a_status_is_written_when_the_server_is_back(settings: Settings) -> None:
    away = [True]

    async def refuse(*args: Any, **options: Any) -> Any:
        if away[0]:
            raise ServerError("away")
        return await client.status.patch(*args[-2:], **options)

    client = FakeClient(_pod("true"))
    wrapped = interceptor.wrap(client, interceptor.Funcs(subresource_patch=refuse))
    async with _world(wrapped, settings) as world:
        await world.run_has_ended()
        assert (await client.get(Pod, REQUEST)).status.phase == "Pending"
        away[0] = False
        await world.until(lambda pod: pod.status.phase == "Succeeded", "the status arrives")


@pytest.mark.parametrize(("command", "phase", "code"), [("exit 0", "Succeeded", 0), ("exit 6", "Failed", 6)])
async def test_an_end_that_a_kubelet_could_not_report_is_reported_by_the_next(
    settings: Settings, command: str, phase: str, code: int
) -> None:
    async def refuse(*args: Any, **options: Any) -> Any:
        raise ServerError("away")

    client = FakeClient(_pod("sh", "-c", f"echo ran; {command}"))
    async with _world(
        interceptor.wrap(client, interceptor.Funcs(subresource_patch=refuse)), settings
    ) as world:
        await world.run_has_ended()
    async with _world(client, settings) as world:
        pod = await world.until(lambda pod: pod.status.phase in ("Succeeded", "Failed"), "the pod has ended")
        assert await world.log() == b"ran\n"
    assert (pod.status.phase, _end(pod).exit_code) == (phase, code)


async def test_a_condition_that_another_writer_has_changed_is_written_again(settings: Settings) -> None:
    client = FakeClient(_pod("sleep", "2468"))
    async with _world(client, settings) as world:
        pod = await world.until(lambda pod: _ready(pod) == "True", "the pod is ready")
        # The node controller writes this for the pods of a node whose lease was not renewed.
        unready = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        body = msgspec.json.encode({"status": {"conditions": [unready]}})
        await client.status.patch(pod, raw_patch(STRATEGIC, body))
        world.add(REQUEST)
        pod = await world.until(lambda pod: _ready(pod) == "True", "the pod is ready again")
    (since,) = [each.last_transition_time for each in pod.status.conditions or [] if each.type == "Ready"]
    assert since != unready["lastTransitionTime"]


def _ready(pod: Pod) -> str:
    return next((each.status for each in pod.status.conditions or [] if each.type == "Ready"), "")


async def test_a_container_that_ran_in_an_earlier_kubelet_has_ended(settings: Settings) -> None:
    began = "2026-01-01T00:00:00Z"
    left = await anyio.open_process(["sleep", "7915"], env={process.IDENTITY: f"{UID}-main-1"})
    ran = {"name": "main", "restartCount": 1, "containerID": f"process://{UID}-main-1"}
    status = {"phase": "Running", "containerStatuses": [{**ran, "state": {"running": {"startedAt": began}}}]}
    async with _world(FakeClient(_pod("true", status=status)), settings) as world:
        pod = await world.until(lambda pod: pod.status.phase == "Failed", "the pod has failed")
    with anyio.fail_after(60):
        assert await left.wait() == -signal.SIGKILL, "the earlier kubelet was killed with its shim"
    await left.aclose()
    (found,) = pod.status.container_statuses or []
    assert found.restart_count == 1
    assert (_end(pod).reason, _end(pod).started_at) == ("ContainerStatusUnknown", began)


async def test_a_container_whose_start_was_not_reported_does_not_run_twice(settings: Settings) -> None:
    log = settings.logs(UID, "main") / "0"
    log.mkdir(parents=True)  # the earlier kubelet has started the process, and ended before it wrote a status
    async with _world(FakeClient(_pod("echo", "again")), settings) as world:
        pod = await world.until(lambda pod: pod.status.phase in ("Succeeded", "Failed"), "the pod has ended")
    assert (_end(pod).exit_code, _end(pod).reason) == (137, "ContainerStatusUnknown")
    assert not list(log.iterdir())


async def test_logs_follow_a_container_and_name_a_reason_without_one(settings: Settings) -> None:
    client = FakeClient(_pod("sh", "-c", "echo one; sleep 0.5; echo two"))
    async with _world(client, settings) as world:
        with pytest.raises(LogError, match="waiting to start"):
            await world.log()
        await world.until(lambda pod: pod.status.phase in ("Running", "Succeeded"), "the pod has started")
        with anyio.fail_after(30):
            assert await world.log("follow=true") == b"one\ntwo\n"
        assert await world.log("tailLines=1") == b"two\n"
        assert await world.log("limitBytes=2") == b"on"
        with pytest.raises(LogError, match='container "no" in pod "web" not found'):
            await world.log(container="no")
        with pytest.raises(LogError, match="previous terminated"):
            await world.log("previous=true")


async def test_a_log_is_followed_while_its_container_starts(settings: Settings) -> None:
    client = FakeClient(_pod("sh", "-c", "echo one; sleep 0.3; echo two"))
    async with _world(client, settings) as world:
        with anyio.fail_after(30):
            while True:
                try:
                    found = await world.log("follow=true")
                    break
                except LogError:
                    await anyio.lowlevel.checkpoint()
    assert found == b"one\ntwo\n"


async def test_a_followed_log_without_output_lets_the_server_look_for_its_client(settings: Settings) -> None:
    async with _world(FakeClient(_pod("sleep", "3579")), settings) as world:
        await world.until(lambda pod: pod.status.phase == "Running", "the pod runs")
        pieces = world.logs.log("/containerLogs/team/web/main?follow=true")
        with anyio.fail_after(30):
            assert [await anext(pieces) for _ in range(3)] == [b"", b"", b""]


async def test_the_previous_log_of_a_container_that_waits_is_that_of_its_last_start(
    settings: Settings,
) -> None:
    slow = replace(settings, back_off=BackOff(first=300, longest=300))
    client = FakeClient(_pod("sh", "-c", "echo diverged; exit 3", restartPolicy="OnFailure"))
    async with _world(client, slow) as world:

        def waits(pod: Pod) -> bool:
            (status,) = pod.status.container_statuses or []
            return bool(
                status.state and status.state.waiting and status.state.waiting.reason == "CrashLoopBackOff"
            )

        await world.until(lambda pod: bool(pod.status.container_statuses) and waits(pod), "it waits")
        assert await world.log("previous=true") == b"diverged\n"
        assert await world.log() == b"diverged\n"


async def test_folders_of_pods_that_do_not_exist_are_removed(settings: Settings) -> None:
    kubelet = Kubelet(FakeClient(), settings, lambda name: True, RemovedPods(settings.directory / "removed"))
    for uid in ("old", "new"):
        settings.pod(uid).mkdir(parents=True)
    kubelet.forget_others({"new"})
    assert [path.name for path in (settings.directory / "pods").iterdir()] == ["new"]


async def test_nodes_are_made_ready_and_hold_leases() -> None:
    client = FakeClient(node(0, NodeShape(), 1, processes=True), node(1, NodeShape(), 1))
    nodes = Nodes(client)
    for _ in range(2):
        await nodes.heartbeat()
    assert "node-0" in nodes
    assert "node-1" not in nodes
    ready = {
        each.name: [c.status for c in each.status.conditions or [] if c.type == "Ready"]
        for each in await client.list(Node)
    }
    assert ready == {"node-0": ["True"], "node-1": []}
    assert [lease.key for lease in await client.list(Lease)] == [(LEASES, "node-0")]
