# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Pods as local processes without an API server: real processes, a client in memory."""

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from controller_runtime.apis.core.v1 import (
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
)
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import GVK, unstructured
from testkit.local_pods import (
    UID,
    commands_below,
    container,
    end_of,
    exit_code,
    finished,
    new_pod,
    read_log,
    running,
    stop,
    until,
)

from trainerctl.localcluster.processes import logs
from trainerctl.localcluster.processes.settings import BackOff, Settings
from trainerctl.localcluster.processes.status import render

pytestmark = pytest.mark.slow


async def test_init_containers_run_in_order_before_the_others(settings: Settings) -> None:
    path = settings.directory / "order"
    pod = new_pod(
        container("sh", "-c", f"echo main >> {path}"),
        initContainers=[
            container("sh", "-c", f"sleep 0.2; echo first >> {path}", name="first"),
            container("sh", "-c", f"echo second >> {path}", name="second"),
        ],
    )
    runner = await finished(pod, settings)
    assert path.read_text().split() == ["first", "second", "main"]
    assert runner.record.phase == "Succeeded"


async def test_a_failed_init_container_fails_the_pod_without_starting_the_others(settings: Settings) -> None:
    pod = new_pod(container("sh", "-c", "echo no"), initContainers=[container("false", name="first")])
    runner = await finished(pod, settings)
    assert runner.record.phase == "Failed"
    assert isinstance(runner.record.containers[0].state, ContainerStateWaiting)
    status = render(runner.record, pod, settings.now())
    assert [each["status"] for each in status["conditions"] if each["type"] == "Initialized"] == ["False"]


async def test_a_sidecar_starts_before_the_others_and_ends_after_them(settings: Settings) -> None:
    path = settings.directory / "order"
    loop = f"trap 'echo term >> {path}; exit 0' TERM; echo up >> {path}; while :; do sleep 0.05; done"
    probe = {"exec": {"command": ["test", "-s", str(path)]}, "periodSeconds": 1, "failureThreshold": 30}
    side = container("sh", "-c", loop, name="side", restartPolicy="Always", startupProbe=probe)
    pod = new_pod(container("sh", "-c", f"cat {path}; echo main >> {path}"), initContainers=[side])
    runner = await finished(pod, settings)
    assert path.read_text().split() == ["up", "main", "term"]
    assert read_log(settings) == "up\n"
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

    sidecars = [container(*ending(name), name=name, restartPolicy="Always") for name in ("one", "two")]
    pod = new_pod(container(*ending("main")), initContainers=sidecars)
    async with running(pod, settings) as runner:
        for name in ("one", "two", "main"):
            await until(lambda name=name: "up" in read_log(settings, name), f"{name} runs")  # type: ignore[misc]
        await stop(runner, 60)
    assert ends.read_text().split() == ["main", "two", "one"]


@pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "complete"])
async def test_a_sidecar_that_ends_while_its_pod_ends_is_not_started_again(
    settings: Settings, tmp_path: Path, stopped: bool
) -> None:
    """Let the first sidecar end while another container ends: the main one, or the second sidecar."""

    def ending(name: str, then: str = "") -> dict[str, Any]:
        script = f"trap 'touch {tmp_path}/end; sleep 1.5; exit 0' TERM; echo up; while :; do sleep 0.05; {then} done"
        return container("sh", "-c", script, name=name)

    first = container("sh", "-c", f"until test -e {tmp_path}/end; do sleep 0.05; done; exit 1", name="first")
    sidecars = [{**each, "restartPolicy": "Always"} for each in (first, ending("second"))]
    main = ending("main", "" if stopped else f"test ! -e {tmp_path}/go || exit 0;")
    async with running(new_pod(main, initContainers=sidecars), settings) as runner:
        for name in ("second", "main"):
            await until(lambda name=name: "up" in read_log(settings, name), f"{name} runs")  # type: ignore[misc]
        if stopped:
            runner.stop(60)
        else:
            (tmp_path / "go").touch()
        await end_of(runner)
    ended = runner.record.init[0]
    assert ended.restarts == 0
    assert isinstance(ended.state, ContainerStateTerminated)
    assert ended.state.exit_code == 1


async def test_sidecars_are_killed_at_the_end_of_the_grace_that_the_others_used_up(
    settings: Settings,
) -> None:
    script = "trap '' TERM; echo up; while :; do sleep 0.05; done"
    sidecar = container("sh", "-c", script, name="one", restartPolicy="Always")
    pod = new_pod(container("sh", "-c", script), initContainers=[sidecar])
    async with running(pod, settings) as runner:
        await until(lambda: "up" in read_log(settings), "it runs")
        await stop(runner, 0.2)
    assert exit_code(runner) == 137


@pytest.mark.parametrize(
    ("command", "end"),
    [
        (["sh", "-c", "exit 7"], (7, "Error")),
        (["sh", "-c", "kill -9 $$$$"], (137, "Error")),
        (["no-such-program"], (128, "StartError")),
    ],
    ids=["exit code", "signal", "no program"],
)
async def test_the_end_of_a_container_is_reported(
    settings: Settings, command: list[str], end: tuple[int, str]
) -> None:
    runner = await finished(new_pod(container(*command)), settings)
    state = runner.record.containers[0].state
    assert isinstance(state, ContainerStateTerminated)
    assert (runner.record.phase, state.exit_code, state.reason) == ("Failed", *end)


async def test_a_container_is_started_again_after_failures_until_it_succeeds(settings: Settings) -> None:
    path = settings.directory / "count"
    script = f'echo x >> {path}; test "$(wc -l < {path})" -ge 3'.replace("$(", "$$(")
    pod = new_pod(container("sh", "-c", script), restartPolicy="OnFailure")
    runner = await finished(pod, settings)
    record = runner.record.containers[0]
    assert (record.restarts, runner.record.phase) == (2, "Succeeded")
    assert record.last is not None
    assert record.last.exit_code == 1
    assert logs.runs(settings.logs(UID, "main")) == [1, 2]


async def test_a_container_that_waits_to_be_restarted_can_be_stopped(
    settings: Settings, events: list[tuple[str, str]]
) -> None:
    slow = replace(settings, back_off=BackOff(first=1000))
    async with running(new_pod(container("sh", "-c", "exit 4"), restartPolicy="Always"), slow) as runner:
        state = runner.record.containers[0]
        await until(
            lambda: isinstance(state.state, ContainerStateWaiting) and state.last is not None, "it waits"
        )
        assert isinstance(state.state, ContainerStateWaiting)
        assert state.state.reason == "CrashLoopBackOff"
        await stop(runner, 5)
    assert exit_code(runner) == 4
    assert runner.record.phase == "Failed"


@pytest.mark.parametrize(
    ("trap", "daemon", "grace", "code"),
    [("echo term; exit 5", "", 60, 5), ("", "setsid sleep 4567 &", 0.2, 137)],
    ids=["it handles SIGTERM", "it ignores SIGTERM, and a daemon has left the session"],
)
async def test_stop_ends_or_kills_all_processes(
    settings: Settings, trap: str, daemon: str, grace: float, code: int
) -> None:
    script = f"trap '{trap}' TERM; {daemon} echo up; while :; do sleep 0.05; done"
    async with running(new_pod(container("sh", "-c", script)), settings) as runner:
        await until(lambda: "up" in read_log(settings), "it runs")
        await stop(runner, grace)
        assert not commands_below(settings.directory)
    assert exit_code(runner) == code
    assert ("term" in read_log(settings)) == bool(trap)


async def test_a_shorter_grace_replaces_a_longer_one(settings: Settings) -> None:
    async with running(
        new_pod(container("sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done")), settings
    ) as runner:
        await until(lambda: "up" in read_log(settings), "it runs")
        runner.stop(10_000)
        await anyio.sleep(0.3)
        await stop(runner, 0)
    assert exit_code(runner) == 137


@pytest.mark.parametrize("delay", [0.0, 0.01, 0.05, 0.1, 0.2])
async def test_a_pod_that_is_stopped_while_it_starts_ends(settings: Settings, delay: float) -> None:
    async with running(new_pod(container("sleep", "5678")), settings) as runner:
        await anyio.sleep(delay)
        await stop(runner, 5)
        assert not commands_below(settings.directory)
    assert runner.record.phase == "Failed"


async def test_processes_that_outlive_the_first_one_are_ended(settings: Settings) -> None:
    await finished(new_pod(container("sh", "-c", "setsid sleep 7890 & exit 0")), settings)


async def test_a_deadline_passes_while_the_machine_sleeps(settings: Settings) -> None:
    slept = timedelta()
    settings = replace(settings, now=lambda: datetime.now(UTC) + slept)
    pod = new_pod(container("sleep", "5791"), activeDeadlineSeconds=3600)
    async with running(pod, settings) as runner:
        await until(lambda: isinstance(runner.record.containers[0].state, ContainerStateRunning), "it runs")
        slept = timedelta(seconds=3600)
        await end_of(runner)
    assert (runner.record.phase, runner.record.reason) == ("Failed", "DeadlineExceeded")


async def test_logs_have_a_bound_and_lose_only_their_beginning(settings: Settings) -> None:
    script = "import sys; [sys.stdout.write(f'{n:079d}\\n') for n in range(1_250_000)]"
    env = [{"name": "PYTHONUNBUFFERED", "value": ""}]
    await finished(new_pod(container("python", "-c", script, env=env)), settings)
    folder = settings.logs(UID, "main") / "0"
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 50 << 20
    assert read_log(settings).endswith(f"{1_249_999:079d}\n")


async def test_without_mounts_a_container_gets_folders_and_addresses(settings: Settings) -> None:
    plain = replace(settings, isolated=False)
    script = "cat $POD_MOUNTS/data/x; echo $ADDR; cd $POD_MOUNTS/no/such && pwd"
    pod = new_pod(
        container(
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
    runner = await finished(pod, plain)
    root = plain.pod(UID) / "root"
    assert read_log(settings) == f"web{runner.record.address}:80\n{root}/no/such\n"


CLAIM = unstructured(GVK("", "v1", "PersistentVolumeClaim")).wrap(
    {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"namespace": "team", "name": "data", "uid": "uid-of-data"},
    }
)
ON_CLAIM = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]


async def test_a_link_that_a_container_planted_in_a_claim_is_not_followed_by_a_sub_path(
    settings: Settings, events: list[tuple[str, str]]
) -> None:
    settings = replace(settings, reader=FakeClient(CLAIM))
    outside = settings.directory / "outside"
    outside.mkdir()
    mount = {"name": "v", "mountPath": "/data"}
    plant = container("ln", "-s", str(outside), "/data/link", name="plant", volumeMounts=[mount])
    main = container("touch", "/data/stolen", volumeMounts=[{**mount, "subPath": "link/new"}])
    async with running(new_pod(main, initContainers=[plant], volumes=ON_CLAIM), settings) as runner:
        await until(lambda: bool(events), "the container is refused")
        state = runner.record.containers[0].state
        assert isinstance(state, ContainerStateWaiting)
        assert state.reason == "CreateContainerConfigError"
    assert events == [("Failed", "Error: subPath link/new of volume v must be a path inside the volume")]
    assert not [*outside.iterdir()]


async def test_a_mount_below_a_planted_link_does_not_change_the_host(settings: Settings) -> None:
    settings = replace(settings, reader=FakeClient(CLAIM))
    outside = settings.directory / "outside"
    outside.mkdir()
    mounts = [{"name": "v", "mountPath": "/data"}]
    plant = container("ln", "-s", str(outside), "/data/link", name="plant", volumeMounts=mounts)
    below = [*mounts, {"name": "e", "mountPath": "/data/link/new"}]
    main = container("sh", "-c", "echo x > /data/link/new/x && cat /data/link/new/x", volumeMounts=below)
    await finished(
        new_pod(main, initContainers=[plant], volumes=[*ON_CLAIM, {"name": "e", "emptyDir": {}}]), settings
    )
    assert read_log(settings) == "x\n"
    assert not [*outside.iterdir()]


async def test_volumes_that_are_made_of_objects_are_read_only(settings: Settings) -> None:
    files = {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}
    volumes = [
        {"name": "down", "downwardAPI": files},
        {"name": "all", "projected": {"sources": [{"downwardAPI": files}]}},
        {"name": "e", "emptyDir": {}},
    ]
    mounts = [
        {"name": "down", "mountPath": "/down"},
        {"name": "down", "mountPath": "/file", "subPath": "name"},
        {"name": "all", "mountPath": "/all"},
        {"name": "e", "mountPath": "/all/inside"},
    ]
    script = (
        "for path in /down/x /down/name /file /all/x /all/inside/x; do"
        " echo y 2>/dev/null >$path && echo $path; done; cat /down/name /file"
    )
    await finished(new_pod(container("sh", "-c", script, volumeMounts=mounts), volumes=volumes), settings)
    assert read_log(settings) == "/all/inside/x\nwebweb"


async def test_a_message_is_not_read_through_a_link(settings: Settings) -> None:
    settings = replace(settings, reader=FakeClient(CLAIM))
    secret = settings.directory / "secret"
    secret.write_text("mine")
    mounts = [
        {"name": "v", "mountPath": "/data"},
        {"name": "v", "mountPath": "/message", "subPath": "message"},
    ]
    prepare = container("touch", "/data/message", name="prepare", volumeMounts=mounts[:1])
    script = f"rm -f /data/message; ln -s {secret} /data/message"
    main = container("sh", "-c", script, volumeMounts=mounts, terminationMessagePath="/message")
    runner = await finished(new_pod(main, initContainers=[prepare], volumes=ON_CLAIM), settings)
    state = runner.record.containers[0].state
    assert isinstance(state, ContainerStateTerminated)
    assert (state.exit_code, state.message or "") == (0, "")


async def test_containers_run_as_the_user_of_the_machine(settings: Settings) -> None:
    await finished(new_pod(container("sh", "-c", "id -u; test -w /dev/null && echo $HOME")), settings)
    assert read_log(settings) == f"{os.getuid()}\n{settings.directory}/home\n"
