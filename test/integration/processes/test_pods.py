# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Pods as local processes without an API server: real processes, a client in memory."""

import os
import resource
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from controller_runtime.apis.core.v1 import ConfigMap, Pod
from controller_runtime.apis.machinery.errors import ServerError
from controller_runtime.client.fake import FakeClient
from controller_runtime.envtest import eventually
from controller_runtime.envtest.pki import Authority
from controller_runtime.envtest.ports import free_ports

from pkg.localcluster.podlogs.query import Query
from pkg.localcluster.processes import logs, process
from pkg.localcluster.processes.images import Images
from pkg.localcluster.processes.names import Hosts
from pkg.localcluster.processes.pod import PodRunner
from pkg.localcluster.processes.settings import BackOff, Settings
from pkg.localcluster.processes.status import Running, Terminated, Waiting, render

UID = str(uuid.uuid4())
"""That of each test's pod. Another run of these tests on the machine must not find the processes of this one."""


class _Tokens:
    async def token(self, pod: Pod, projection: Any) -> str:
        return "token"


@pytest.fixture
def events() -> list[tuple[str, str]]:
    return []


@pytest.fixture
async def settings(tmp_path: Path, events: list[tuple[str, str]]) -> Settings:
    return Settings(
        directory=tmp_path,
        images=Images(tmp_path / "programs", default=Path(sys.executable).parent),
        hosts=Hosts(tmp_path / "hosts"),
        reader=FakeClient(),
        tokens=_Tokens(),
        record=lambda pod, reason, message: events.append((reason, message)),
        server="127.0.0.1:1",
        isolated=not await process.can_mount(),
        back_off=BackOff(first=0.01, longest=0.05),
        retry=0.05,
    )


def _pod(*containers: dict[str, Any], **spec: Any) -> Pod:
    return Pod.from_dict(
        {
            "metadata": {"name": "web", "namespace": "team", "uid": UID},
            "spec": {"containers": list(containers), "restartPolicy": "Never", **spec},
        }
    )


def _container(*command: str, name: str = "main", **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": "i", "command": list(command), **fields}


@asynccontextmanager
async def _running(pod: Pod, settings: Settings) -> AsyncIterator[PodRunner]:
    runner = PodRunner(pod, settings, lambda: None)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(runner.run)
        yield runner
        tasks.cancel_scope.cancel()
    assert not _left(settings)


def _left(settings: Settings) -> list[str]:
    """Return the processes of the pod."""
    found = []
    for each in psutil.process_iter():
        try:
            if each.environ().get("PIP_TARGET", "").startswith(str(settings.directory)):
                found.append(" ".join(each.cmdline()))
        except psutil.Error:
            continue
    return found


async def _finished(pod: Pod, settings: Settings) -> PodRunner:
    async with _running(pod, settings) as runner:
        with anyio.fail_after(60):
            await runner.finished.wait()
    return runner


async def _until(condition: Callable[[], bool], reason: str) -> None:
    async def holds() -> bool:
        return condition()

    await eventually(holds, timeout=60, reason=reason)


def _log(settings: Settings, container: str = "main", start: int = 0) -> str:
    reader = logs.LogReader(settings.logs(UID, container) / str(start), Query())
    try:
        return b"".join(reader.read()).decode()
    finally:
        reader.close()


def _code(runner: PodRunner) -> int:
    state = runner.record.containers[0].state
    assert isinstance(state, Terminated)
    return state.exit_code


async def test_init_containers_run_in_order_before_the_others(settings: Settings) -> None:
    path = settings.directory / "order"
    pod = _pod(
        _container("sh", "-c", f"echo main >> {path}"),
        initContainers=[
            _container("sh", "-c", f"sleep 0.2; echo first >> {path}", name="first"),
            _container("sh", "-c", f"echo second >> {path}", name="second"),
        ],
    )
    runner = await _finished(pod, settings)
    assert path.read_text().split() == ["first", "second", "main"]
    assert runner.record.phase == "Succeeded"


async def test_a_failed_init_container_fails_the_pod_without_starting_the_others(settings: Settings) -> None:
    pod = _pod(_container("sh", "-c", "echo no"), initContainers=[_container("false", name="first")])
    runner = await _finished(pod, settings)
    assert runner.record.phase == "Failed"
    assert isinstance(runner.record.containers[0].state, Waiting)
    status = render(runner.record, pod, settings.now())
    assert [each["status"] for each in status["conditions"] if each["type"] == "Initialized"] == ["False"]


async def test_a_sidecar_starts_before_the_others_and_ends_after_them(settings: Settings) -> None:
    path = settings.directory / "order"
    loop = f"trap 'echo term >> {path}; exit 0' TERM; echo up >> {path}; while :; do sleep 0.05; done"
    probe = {"exec": {"command": ["test", "-s", str(path)]}, "periodSeconds": 1, "failureThreshold": 30}
    side = _container("sh", "-c", loop, name="side", restartPolicy="Always", startupProbe=probe)
    pod = _pod(_container("sh", "-c", f"cat {path}; echo main >> {path}"), initContainers=[side])
    runner = await _finished(pod, settings)
    assert path.read_text().split() == ["up", "main", "term"]
    assert _log(settings) == "up\n"
    assert runner.record.phase == "Succeeded"


async def test_sidecars_are_stopped_after_the_others_the_last_one_first(
    settings: Settings, tmp_path: Path
) -> None:
    ends = tmp_path / "ends"

    def ending(name: str) -> list[str]:
        script = (
            f"trap 'sleep 0.5; echo {name} >> {ends}; exit 0' TERM; echo up; while :; do sleep 0.05; done"
        )
        return ["sh", "-c", script]

    sidecars = [_container(*ending(name), name=name, restartPolicy="Always") for name in ("one", "two")]
    pod = _pod(_container(*ending("main")), initContainers=sidecars)
    async with _running(pod, settings) as runner:
        for name in ("one", "two", "main"):
            await _until(lambda name=name: "up" in _log(settings, name), f"{name} runs")  # type: ignore[misc]
        runner.stop(60)
        with anyio.fail_after(30):
            await runner.finished.wait()
    assert ends.read_text().split() == ["main", "two", "one"]


@pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "complete"])
async def test_a_sidecar_that_ends_while_its_pod_ends_is_not_started_again(
    settings: Settings, tmp_path: Path, stopped: bool
) -> None:
    """The first sidecar ends while another container ends: the main one or the second sidecar."""

    def ending(name: str, then: str = "") -> dict[str, Any]:
        script = f"trap 'touch {tmp_path}/end; sleep 1.5; exit 0' TERM; echo up; while :; do sleep 0.05; {then} done"
        return _container("sh", "-c", script, name=name)

    first = _container("sh", "-c", f"until test -e {tmp_path}/end; do sleep 0.05; done; exit 1", name="first")
    sidecars = [{**each, "restartPolicy": "Always"} for each in (first, ending("second"))]
    main = ending("main", "" if stopped else f"test ! -e {tmp_path}/go || exit 0;")
    async with _running(_pod(main, initContainers=sidecars), settings) as runner:
        for name in ("second", "main"):
            await _until(lambda name=name: "up" in _log(settings, name), f"{name} runs")  # type: ignore[misc]
        if stopped:
            runner.stop(60)
        else:
            (tmp_path / "go").touch()
        with anyio.fail_after(30):
            await runner.finished.wait()
    ended = runner.record.init[0]
    assert ended.restarts == 0
    assert isinstance(ended.state, Terminated)
    assert ended.state.exit_code == 1


async def test_sidecars_are_killed_at_the_end_of_the_grace_that_the_others_used_up(
    settings: Settings,
) -> None:
    script = "trap '' TERM; echo up; while :; do sleep 0.05; done"
    sidecar = _container("sh", "-c", script, name="one", restartPolicy="Always")
    pod = _pod(_container("sh", "-c", script), initContainers=[sidecar])
    async with _running(pod, settings) as runner:
        await _until(lambda: "up" in _log(settings), "it runs")
        runner.stop(0.2)
        with anyio.fail_after(30):
            await runner.finished.wait()
    assert _code(runner) == 137


async def test_a_container_is_started_again_after_failures_until_it_succeeds(settings: Settings) -> None:
    path = settings.directory / "count"
    script = f'echo x >> {path}; test "$(wc -l < {path})" -ge 3'.replace("$(", "$$(")
    pod = _pod(_container("sh", "-c", script), restartPolicy="OnFailure")
    runner = await _finished(pod, settings)
    record = runner.record.containers[0]
    assert (record.restarts, runner.record.phase) == (2, "Succeeded")
    assert record.last is not None
    assert record.last.exit_code == 1
    assert logs.attempts(settings.logs(UID, "main")) == [1, 2]


async def test_a_container_that_waits_to_be_restarted_can_be_stopped(
    settings: Settings, events: list[tuple[str, str]]
) -> None:
    slow = replace(settings, back_off=BackOff(first=1000))
    async with _running(_pod(_container("sh", "-c", "exit 4"), restartPolicy="Always"), slow) as runner:
        state = runner.record.containers[0]
        await _until(lambda: isinstance(state.state, Waiting) and state.last is not None, "it waits")
        assert isinstance(state.state, Waiting)
        assert state.state.reason == "CrashLoopBackOff"
        runner.stop(5)
        with anyio.fail_after(30):
            await runner.finished.wait()
    assert _code(runner) == 4
    assert runner.record.phase == "Failed"


async def test_stop_ends_a_process_that_handles_sigterm(settings: Settings) -> None:
    script = "trap 'echo term; exit 5' TERM; echo up; while :; do sleep 0.05; done"
    async with _running(_pod(_container("sh", "-c", script)), settings) as runner:
        await _until(lambda: "up" in _log(settings), "it runs")
        runner.stop(60)
        with anyio.fail_after(30):
            await runner.finished.wait()
    assert _code(runner) == 5
    assert "term" in _log(settings)


async def test_stop_kills_processes_that_ignore_sigterm_or_left_the_session(settings: Settings) -> None:
    script = "trap '' TERM; setsid sleep 4567 & echo up; while :; do sleep 0.05; done"
    async with _running(_pod(_container("sh", "-c", script)), settings) as runner:
        await _until(lambda: "up" in _log(settings), "it runs")
        runner.stop(0.2)
        with anyio.fail_after(30):
            await runner.finished.wait()
        assert not _left(settings)
    assert _code(runner) == 137


async def test_a_shorter_grace_replaces_a_longer_one(settings: Settings) -> None:
    async with _running(
        _pod(_container("sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done")), settings
    ) as runner:
        await _until(lambda: "up" in _log(settings), "it runs")
        runner.stop(10_000)
        await anyio.sleep(0.3)
        runner.stop(0)
        with anyio.fail_after(30):
            await runner.finished.wait()
    assert _code(runner) == 137


@pytest.mark.parametrize("delay", [0.0, 0.01, 0.05, 0.1, 0.2])
async def test_a_pod_that_is_stopped_while_it_starts_ends(settings: Settings, delay: float) -> None:
    async with _running(_pod(_container("sleep", "5678")), settings) as runner:
        await anyio.sleep(delay)
        runner.stop(5)
        with anyio.fail_after(30):
            await runner.finished.wait()
        assert not _left(settings)
    assert runner.record.phase == "Failed"


async def test_processes_that_outlive_the_first_one_are_ended(settings: Settings) -> None:
    await _finished(_pod(_container("sh", "-c", "setsid sleep 7890 & exit 0")), settings)


async def test_a_probe_that_fails_restarts_the_container(
    settings: Settings, events: list[tuple[str, str]]
) -> None:
    probe = {
        "exec": {"command": ["sh", "-c", "echo broken; exit 1"]},
        "periodSeconds": 1,
        "timeoutSeconds": 60,
        "failureThreshold": 1,
    }
    pod = _pod(_container("sleep", "8901", livenessProbe=probe), restartPolicy="Always")
    async with _running(pod, settings) as runner:
        await _until(lambda: runner.record.containers[0].restarts > 0, "it is started again")
    assert ("Unhealthy", "Liveness probe failed: broken") in events


@pytest.mark.parametrize("kind", ["livenessProbe", "startupProbe"])
async def test_a_probe_has_a_grace_of_its_own(settings: Settings, kind: str) -> None:
    probe: dict[str, Any] = {
        "exec": {"command": ["false"]},
        "periodSeconds": 1,
        "failureThreshold": 1,
        "terminationGracePeriodSeconds": 1,
    }
    fields: dict[str, Any] = {kind: probe}
    script = "trap '' TERM; while :; do sleep 0.05; done"
    pod = _pod(
        _container("sh", "-c", script, **fields),
        restartPolicy="Always",
        terminationGracePeriodSeconds=3600,
    )
    async with _running(pod, settings) as runner:
        await _until(lambda: runner.record.containers[0].restarts > 0, "it is started again")


async def test_a_container_that_is_stopped_is_not_killed_by_its_liveness_probe(
    settings: Settings, events: list[tuple[str, str]]
) -> None:
    script = "trap 'rm ok; echo term' TERM; touch ok; echo up; while :; do sleep 0.05; done"
    probe = {"exec": {"command": ["test", "-e", "ok"]}, "periodSeconds": 1, "failureThreshold": 1}
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "echo hook >> hooks"]}}}
    pod = _pod(_container("sh", "-c", script, livenessProbe=probe, lifecycle=hook))
    async with _running(pod, settings) as runner:
        await _until(lambda: "up" in _log(settings), "it runs")
        runner.stop(4)
        with anyio.fail_after(30):
            await runner.finished.wait()
    assert _log(settings).splitlines().count("term") == 1
    assert (settings.pod(UID) / "containers" / "main" / "work" / "hooks").read_text() == "hook\n"
    assert not [reason for reason, _ in events if reason == "Killing"]


async def test_readiness_follows_http(settings: Settings) -> None:
    code = (
        "import http.server, os, pathlib\n"
        "class H(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        self.send_response(200 if pathlib.Path('ok').exists() else 503)\n"
        "        self.end_headers()\n"
        "s = http.server.ThreadingHTTPServer((os.environ['IP'], int(os.environ['PORT'])), H)\n"
        "s.serve_forever()\n"
    )
    probe = {"httpGet": {"path": "/", "port": "web"}, "periodSeconds": 1, "failureThreshold": 1}
    (port,) = free_ports(1)
    env: list[dict[str, Any]] = [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    env.append({"name": "PORT", "value": str(port)})
    ports = [{"name": "web", "containerPort": port}]
    folder = settings.pod(UID) / "containers" / "main" / "work"
    pod = _pod(_container("python", "-c", code, readinessProbe=probe, env=env, ports=ports))
    async with _running(pod, settings) as runner:
        record = runner.record.containers[0]
        await _until(lambda: isinstance(record.state, Running), "it runs")
        assert not record.ready
        (folder / "ok").touch()
        await _until(lambda: record.ready, "it is ready")
        (folder / "ok").unlink()
        await _until(lambda: not record.ready, "it is not ready")


async def test_readiness_follows_https(
    settings: Settings, events: list[tuple[str, str]], tmp_path: Path
) -> None:
    # The first connection is closed within the handshake, as by a server that starts.
    pair = Authority.create("test").server("web", ["localhost"])
    certificate, key = pair.write(tmp_path / "pki")
    code = (
        "import os, socket, ssl\n"
        "server = socket.create_server((os.environ['IP'], int(os.environ['PORT'])))\n"
        "first = server.accept()[0]; first.recv(1); first.shutdown(socket.SHUT_WR)\n"
        "while first.recv(999): pass\n"
        "tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)\n"
        f"tls.load_cert_chain({str(certificate)!r}, {str(key)!r})\n"
        "while True:\n"
        "    with tls.wrap_socket(server.accept()[0], server_side=True) as peer:\n"
        "        peer.recv(999); peer.sendall(b'HTTP/1.1 200 OK\\r\\n\\r\\n')\n"
    )
    (port,) = free_ports(1)
    get = {"port": port, "scheme": "HTTPS"}
    probe = {"httpGet": get, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 5}
    env: list[dict[str, Any]] = [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    env.append({"name": "PORT", "value": str(port)})
    pod = _pod(_container("python", "-c", code, readinessProbe=probe, env=env))
    async with _running(pod, settings) as runner:
        record = runner.record.containers[0]
        await _until(lambda: record.ready or runner.finished.is_set(), "it is ready")
        assert record.ready
    assert ("Unhealthy", "Readiness probe failed: the server closed the connection") in events


async def test_a_missing_secret_is_waited_for(settings: Settings, events: list[tuple[str, str]]) -> None:
    env = [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    async with _running(_pod(_container("sh", "-c", "echo $X", env=env)), settings) as runner:
        record = runner.record.containers[0]
        await _until(
            lambda: isinstance(record.state, Waiting) and record.state.reason == "CreateContainerConfigError",
            "it waits",
        )
        assert ("Failed", 'Error: secret "s" not found') in events
        runner.stop(1)
        with anyio.fail_after(30):
            await runner.finished.wait()
    assert runner.record.phase == "Failed"


async def test_a_container_waits_until_the_machine_allows_another_process(
    settings: Settings, events: list[tuple[str, str]]
) -> None:
    async with _running(_pod(_container("sh", "-c", "echo ran")), settings) as runner:
        with _one_more_file():
            await _until(lambda: bool(events) or runner.finished.is_set(), "it is reported")
            state = runner.record.containers[0].state
        assert events == [("Failed", "Error: [Errno 24] Too many open files")]
        assert state == Waiting("CreateContainerError", "[Errno 24] Too many open files")
        with anyio.fail_after(30):
            await runner.finished.wait()
    assert (_code(runner), runner.record.containers[0].restarts) == (0, 0)
    assert _log(settings) == "ran\n"


@contextmanager
def _one_more_file() -> Iterator[None]:
    """Allow this process one more open file than it has: enough for a plan, not for the pipes of a process."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Path(os.devnull).open() as lowest:
        free = lowest.fileno()
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_a_key_that_is_missing_in_a_config_map_is_waited_for(
    settings: Settings, events: list[tuple[str, str]]
) -> None:
    made = ConfigMap.from_dict({"metadata": {"name": "c", "namespace": "team"}, "data": {"other": "x"}})
    client = FakeClient(made)
    env = [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]
    pod = _pod(_container("sh", "-c", "echo $X", env=env))
    async with _running(pod, replace(settings, reader=client)) as runner:
        await _until(lambda: bool(events), "it waits")
        made = await client.get(ConfigMap, made.key)
        made.data = {"k": "value"}
        await client.update(made)
        with anyio.fail_after(30):
            await runner.finished.wait()
    assert _log(settings) == "value\n"
    assert events == [("Failed", "Error: couldn't find key k in ConfigMap team/c")]


async def test_a_container_that_is_started_again_gets_the_present_value_of_a_config_map(
    settings: Settings, tmp_path: Path
) -> None:
    made = ConfigMap.from_dict({"metadata": {"name": "c", "namespace": "team"}, "data": {"k": "first"}})
    client = FakeClient(made)
    env = [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]
    script = f"echo $X; until test -e {tmp_path}/go; do sleep 0.05; done; test $X = second"
    pod = _pod(_container("sh", "-c", script, env=env), restartPolicy="OnFailure")
    async with _running(pod, replace(settings, reader=client)) as runner:
        await _until(lambda: _log(settings) == "first\n", "it runs")
        made = await client.get(ConfigMap, made.key)
        made.data = {"k": "second"}
        await client.update(made)
        (tmp_path / "go").touch()
        with anyio.fail_after(30):
            await runner.finished.wait()
    assert runner.record.containers[0].restarts == 1


class _RefusedOnce:
    def __init__(self) -> None:
        self._answers: list[Any] = ["second", ServerError("away"), "first"]

    async def token(self, pod: Pod, projection: Any) -> str:
        answer = self._answers.pop() if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return str(answer)


async def test_a_token_is_renewed_after_the_machine_has_slept_and_tried_again_after_a_refusal(
    settings: Settings, events: list[tuple[str, str]]
) -> None:
    slept = timedelta()
    settings = replace(settings, tokens=_RefusedOnce(), now=lambda: datetime.now(UTC) + slept)
    token = {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}}
    pod = _pod(_container("sleep", "4680"), volumes=[{"name": "api", "projected": {"sources": [token]}}])
    path = settings.pod(UID) / "volumes" / "api" / "token"
    async with _running(pod, settings) as runner:
        await _until(lambda: isinstance(runner.record.containers[0].state, Running), "it runs")
        assert path.read_text() == "first"
        slept = timedelta(seconds=1800)
        await _until(lambda: path.read_text() == "second", "the token is renewed")
    assert events == [("FailedMount", "a token cannot be renewed: away")]


async def test_a_deadline_ends_the_pod(settings: Settings) -> None:
    runner = await _finished(_pod(_container("sleep", "9012"), activeDeadlineSeconds=1), settings)
    assert (runner.record.phase, runner.record.reason) == ("Failed", "DeadlineExceeded")


async def test_a_deadline_passes_while_the_machine_sleeps(settings: Settings) -> None:
    slept = timedelta()
    settings = replace(settings, now=lambda: datetime.now(UTC) + slept)
    pod = _pod(_container("sleep", "5791"), activeDeadlineSeconds=3600)
    async with _running(pod, settings) as runner:
        await _until(lambda: isinstance(runner.record.containers[0].state, Running), "it runs")
        slept = timedelta(seconds=3600)
        with anyio.fail_after(30):
            await runner.finished.wait()
    assert (runner.record.phase, runner.record.reason) == ("Failed", "DeadlineExceeded")


async def test_logs_have_a_bound_and_lose_only_their_beginning(settings: Settings) -> None:
    script = "import sys; [sys.stdout.write(f'{n:079d}\\n') for n in range(1_250_000)]"
    env = [{"name": "PYTHONUNBUFFERED", "value": ""}]
    await _finished(_pod(_container("python", "-c", script, env=env)), settings)
    folder = settings.logs(UID, "main") / "0"
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 50 << 20
    assert _log(settings).endswith(f"{1_249_999:079d}\n")


async def test_without_mounts_a_container_gets_folders_and_addresses(settings: Settings) -> None:
    plain = replace(settings, isolated=False)
    script = "cat $POD_MOUNTS/data/x; echo $ADDR; cd $POD_MOUNTS/no/such && pwd"
    pod = _pod(
        _container(
            "sh",
            "-c",
            script,
            env=[{"name": "ADDR", "value": "web.sub:80"}],
            volumeMounts=[{"name": "v", "mountPath": "/data"}],
            workingDir="/no/such",
        ),
        volumes=[
            {
                "name": "v",
                "downwardAPI": {"items": [{"path": "x", "fieldRef": {"fieldPath": "metadata.name"}}]},
            }
        ],
        subdomain="sub",
    )
    runner = await _finished(pod, plain)
    root = plain.pod(UID) / "root"
    assert _log(settings) == f"web{runner.record.address}:80\n{root}/no/such\n"


async def test_containers_run_as_the_user_of_the_machine(settings: Settings) -> None:
    await _finished(_pod(_container("sh", "-c", "id -u; test -w /dev/null && echo $HOME")), settings)
    assert _log(settings) == f"{os.getuid()}\n{settings.directory}/home\n"
