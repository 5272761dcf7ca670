# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Probes of pods that run as local processes: real processes, a client in memory."""

from pathlib import Path
from typing import Any

import pytest
from controller_runtime.apis.core.v1 import ContainerStateRunning
from controller_runtime.envtest import Authority, free_ports
from testkit.local_pods import UID, container, finished, new_pod, read_log, running, stop, until

from trainerctl.localcluster.processes.settings import Settings

pytestmark = pytest.mark.slow


async def test_a_probe_that_fails_restarts_the_container(
    settings: Settings, events: list[tuple[str, str]]
) -> None:
    probe = {
        "exec": {"command": ["sh", "-c", "echo broken; exit 1"]},
        "periodSeconds": 1,
        "timeoutSeconds": 60,
        "failureThreshold": 1,
    }
    pod = new_pod(container("sleep", "8901", livenessProbe=probe), restartPolicy="Always")
    async with running(pod, settings) as runner:
        await until(lambda: runner.record.containers[0].restarts > 0, "it is started again")
    assert ("Unhealthy", "Liveness probe failed: broken") in events
    assert ("Killing", "Container main failed liveness probe, will be restarted") in events


async def test_a_program_that_a_probe_ended_is_restarted_even_if_it_ended_well(settings: Settings) -> None:
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
    script = "trap 'exit 0' TERM; while :; do sleep 0.05; done"
    pod = new_pod(container("sh", "-c", script, livenessProbe=probe), restartPolicy="OnFailure")
    async with running(pod, settings) as runner:
        await until(lambda: runner.record.containers[0].restarts > 0, "it is started again")


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
    pod = new_pod(
        container("sh", "-c", script, **fields),
        restartPolicy="Always",
        terminationGracePeriodSeconds=3600,
    )
    async with running(pod, settings) as runner:
        await until(lambda: runner.record.containers[0].restarts > 0, "it is started again")


async def test_a_container_that_is_stopped_is_not_killed_by_its_liveness_probe(
    settings: Settings, events: list[tuple[str, str]]
) -> None:
    script = "trap 'rm ok; echo term' TERM; touch ok; echo up; while :; do sleep 0.05; done"
    probe = {"exec": {"command": ["test", "-e", "ok"]}, "periodSeconds": 1, "failureThreshold": 1}
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "echo hook >> hooks"]}}}
    pod = new_pod(container("sh", "-c", script, livenessProbe=probe, lifecycle=hook))
    async with running(pod, settings) as runner:
        await until(lambda: "up" in read_log(settings), "it runs")
        await stop(runner, 4)
    assert read_log(settings).splitlines().count("term") == 1
    assert (settings.pod(UID) / "containers" / "main" / "work" / "hooks").read_text() == "hook\n"
    assert not [reason for reason, _ in events if reason == "Killing"]


@pytest.mark.parametrize(
    ("cause", "hooks", "said"),
    [
        ("postStart", ["stop"], ("FailedPostStartHook", "no start")),
        ("livenessProbe", ["start", "stop"], ("Unhealthy", "Liveness probe failed: no start")),
    ],
)
async def test_hooks_run_after_the_start_and_before_each_end(
    settings: Settings, events: list[tuple[str, str]], cause: str, hooks: list[str], said: tuple[str, str]
) -> None:
    def handler(script: str) -> dict[str, Any]:
        return {"exec": {"command": ["sh", "-c", script]}}

    fail = handler("echo no start; exit 1")
    lifecycle = {
        "postStart": handler("echo start >> hooks"),
        "preStop": handler("echo stop >> hooks; exit 3"),
    }
    fields: dict[str, Any] = {"lifecycle": lifecycle}
    if cause == "postStart":
        lifecycle["postStart"] = fail
    else:
        fields[cause] = {**fail, "periodSeconds": 1, "failureThreshold": 1}
    runner = await finished(new_pod(container("sleep", "8902", **fields)), settings)
    assert runner.record.phase == "Failed"
    assert (settings.pod(UID) / "containers" / "main" / "work" / "hooks").read_text().split() == hooks
    reason = "failed its postStart hook" if cause == "postStart" else "failed liveness probe"
    assert events == [said, ("Killing", f"Container main {reason}"), ("FailedPreStopHook", "exit code 3")]


async def test_readiness_follows_https(
    settings: Settings, events: list[tuple[str, str]], tmp_path: Path
) -> None:
    # The first connection is closed during the TLS handshake, as by a server that is still starting.
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
    get = {"port": "web", "scheme": "HTTPS"}
    ports = [{"name": "web", "containerPort": port}]
    probe = {"httpGet": get, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 5}
    env: list[dict[str, Any]] = [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    env.append({"name": "PORT", "value": str(port)})
    pod = new_pod(container("python", "-c", code, readinessProbe=probe, env=env, ports=ports))
    async with running(pod, settings) as runner:
        record = runner.record.containers[0]
        await until(lambda: isinstance(record.state, ContainerStateRunning), "it runs")
        assert not runner.record.containers[0].ready
        await until(lambda: record.ready or runner.finished.is_set(), "it is ready")
        assert record.ready
    assert any(reason == "Unhealthy" and "EOF" in message for reason, message in events)
