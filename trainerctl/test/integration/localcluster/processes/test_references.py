# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Pods that run as local processes wait for objects, tokens and resources of the machine."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from controller_runtime.apis.core.v1 import ConfigMap, ContainerStateRunning, ContainerStateWaiting, Pod
from controller_runtime.fake import FakeClient
from controller_runtime.machinery.errors import ServerError
from testkit.local_pods import UID, container, end_of, exit_code, new_pod, read_log, running, stop, until

from trainerctl.localcluster.processes.settings import Settings

pytestmark = pytest.mark.slow


async def test_a_missing_secret_is_waited_for(settings: Settings, events: list[tuple[str, str]]) -> None:
    env = [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    async with running(new_pod(container("sh", "-c", "echo $X", env=env)), settings) as runner:
        record = runner.record.containers[0]
        await until(
            lambda: (
                isinstance(record.state, ContainerStateWaiting)
                and record.state.reason == "CreateContainerConfigError"
            ),
            "it waits",
        )
        assert ("Failed", 'Error: secret "s" not found') in events
        await stop(runner, 1)
    assert runner.record.phase == "Failed"


async def test_a_container_waits_until_the_machine_allows_another_process(
    settings: Settings, events: list[tuple[str, str]]
) -> None:
    async with running(new_pod(container("sh", "-c", "echo ran")), settings) as runner:
        with _one_more_file():
            await until(lambda: bool(events) or runner.finished.is_set(), "it is reported")
            state = runner.record.containers[0].state
        assert events == [("Failed", "Error: [Errno 24] Too many open files")]
        assert state == ContainerStateWaiting(
            reason="CreateContainerError", message="[Errno 24] Too many open files"
        )
        await end_of(runner)
    assert (exit_code(runner), runner.record.containers[0].restarts) == (0, 0)
    assert read_log(settings) == "ran\n"


@contextmanager
def _one_more_file() -> Iterator[None]:
    """Allow this process one more open file: that is enough to make a plan, but not for the pipes of a process."""
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
    pod = new_pod(container("sh", "-c", "echo $X", env=env))
    async with running(pod, replace(settings, reader=client)) as runner:
        await until(lambda: bool(events), "it waits")
        made = await client.get(ConfigMap, made.key)
        made.data = {"k": "value"}
        await client.update(made)
        await end_of(runner)
    assert read_log(settings) == "value\n"
    assert events == [("Failed", "Error: couldn't find key k in ConfigMap team/c")]


async def test_a_container_that_is_started_again_gets_the_present_value_of_a_config_map(
    settings: Settings, tmp_path: Path
) -> None:
    made = ConfigMap.from_dict({"metadata": {"name": "c", "namespace": "team"}, "data": {"k": "first"}})
    client = FakeClient(made)
    env = [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]
    script = f"echo $X; until test -e {tmp_path}/go; do sleep 0.05; done; test $X = second"
    pod = new_pod(container("sh", "-c", script, env=env), restartPolicy="OnFailure")
    async with running(pod, replace(settings, reader=client)) as runner:
        await until(lambda: read_log(settings) == "first\n", "it runs")
        made = await client.get(ConfigMap, made.key)
        made.data = {"k": "second"}
        await client.update(made)
        (tmp_path / "go").touch()
        await end_of(runner)
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
    settings = replace(settings, new_token=_RefusedOnce().token, now=lambda: datetime.now(UTC) + slept)
    token = {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}}
    pod = new_pod(container("sleep", "4680"), volumes=[{"name": "api", "projected": {"sources": [token]}}])
    path = settings.pod(UID) / "volumes" / "api" / "token"
    async with running(pod, settings) as runner:
        await until(lambda: isinstance(runner.record.containers[0].state, ContainerStateRunning), "it runs")
        assert path.read_text() == "first"
        slept = timedelta(seconds=1800)
        await until(lambda: path.read_text() == "second", "the token is renewed")
    assert events == [("FailedMount", "a token cannot be renewed: away")]
