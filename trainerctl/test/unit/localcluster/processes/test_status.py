# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The status of pods that run as local processes."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from controller_runtime.apis.core.v1 import (
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    Pod,
)
from controller_runtime.machinery.meta import format_time

from trainerctl.localcluster.processes import status
from trainerctl.localcluster.processes.settings import BackOff
from trainerctl.localcluster.processes.status import ContainerRecord, PodRecord, ended, render

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=9)


def _record(*containers: ContainerRecord, **fields: Any) -> PodRecord:
    given = {"sandboxed": True, "initialized": True, "phase": "Running", **fields}
    return PodRecord("127.64.0.1", NOW, [], list(containers), **given)


def _read(
    written: dict[str, Any] | None, starts: dict[str, int], ends: dict[str, ContainerStateTerminated]
) -> ContainerRecord:
    """Return the record of the only container of a pod with this status, of which these runs and ends are known."""
    statuses = [{"name": "a", **written}] if written else []
    pod = Pod.from_dict(
        {
            "metadata": {"uid": "u"},
            "spec": {"containers": [{"name": "a"}]},
            "status": {"containerStatuses": statuses},
        }
    )
    (record,) = status.records(pod, pod.spec.containers or [], starts, ends, init=False, now=NOW)
    return record


def _conditions(found: dict[str, Any]) -> dict[str, tuple[str, str | None]]:
    return {each["type"]: (each["status"], each["reason"]) for each in found["conditions"]}


def test_a_pod_is_ready_when_every_container_is() -> None:
    ready = ContainerRecord(
        "a", "i", ContainerStateRunning(started_at=format_time(NOW)), ready=True, started=True
    )
    waiting = ContainerRecord(
        "b", "i", ContainerStateWaiting(reason="CrashLoopBackOff", message="m"), restarts=2
    )
    found = render(_record(ready, waiting), Pod(), NOW)
    assert _conditions(found)["Ready"] == ("False", "ContainersNotReady")
    (message,) = [each["message"] for each in found["conditions"] if each["type"] == "Ready"]
    assert message == "containers with unready status: [b]"
    waiting.ready = True
    assert _conditions(render(_record(ready, waiting), Pod(), NOW))["Ready"] == ("True", None)


@pytest.mark.parametrize(("phase", "reason"), [("Succeeded", "PodCompleted"), ("Failed", "PodFailed")])
def test_a_pod_that_has_ended_is_not_ready(phase: str, reason: str) -> None:
    done = ContainerRecord("a", "i", ended(0, format_time(NOW), LATER))
    found = _conditions(render(_record(done, phase=phase), Pod(), NOW))
    assert found["Ready"] == found["ContainersReady"] == ("False", reason)
    assert found["PodReadyToStartContainers"][0] == "False"


def test_a_condition_keeps_the_time_of_its_last_transition() -> None:
    record = _record(
        ContainerRecord("a", "i", ContainerStateRunning(started_at=format_time(NOW)), ready=True)
    )
    first = render(record, Pod(), NOW)
    record.containers[0].ready = False
    second = render(record, Pod(), LATER, first)
    times = {each["type"]: each["lastTransitionTime"] for each in second["conditions"]}
    assert times["Ready"] == "2026-01-01T00:00:09Z"
    assert times["Initialized"] == "2026-01-01T00:00:00Z"


def test_the_states_of_a_container_are_those_of_the_api() -> None:
    record = ContainerRecord(
        "a",
        "i",
        ContainerStateWaiting(reason="CrashLoopBackOff", message="m"),
        ended(1, format_time(NOW), LATER, "x"),
        3,
    )
    record.identity = "u-a-3"
    found = record.to_dict()
    assert found["state"] == {"waiting": {"reason": "CrashLoopBackOff", "message": "m"}}
    assert found["lastState"]["terminated"]["exitCode"] == 1
    assert found["lastState"]["terminated"]["message"] == "x"
    assert (found["restartCount"], found["containerID"]) == (3, "process://u-a-3")


def test_a_container_that_waited_to_be_started_again_counts_as_ended() -> None:
    last = {
        "exitCode": 4,
        "reason": "Error",
        "startedAt": "2026-01-01T00:00:00Z",
        "finishedAt": "2026-01-01T00:00:01Z",
    }
    written = {
        "restartCount": 2,
        "containerID": "process://x",
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": last},
    }
    record = _read(written, {}, {})
    assert isinstance(record.state, ContainerStateTerminated)
    assert (record.state.exit_code, record.restarts) == (4, 2)


@pytest.mark.parametrize(
    ("container_status", "starts", "restarts"),
    [
        (None, {"a": 0}, 0),
        ({"state": {"waiting": {"reason": "ContainerCreating"}}}, {"a": 0}, 0),
        ({"containerID": "process://u-a-0", "restartCount": 0, "state": {"running": {}}}, {"a": 0}, 0),
        ({"containerID": "process://u-a-0", "restartCount": 0, "state": {"running": {}}}, {"a": 1}, 1),
        (
            {
                "containerID": "process://u-a-1",
                "restartCount": 1,
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"exitCode": 4}},
            },
            {"a": 2},
            2,
        ),
    ],
)
def test_a_start_that_no_status_reports_counts_as_lost(
    container_status: dict[str, Any] | None, starts: dict[str, int], restarts: int
) -> None:
    record = _read(container_status, starts, {})
    assert isinstance(record.state, ContainerStateTerminated)
    assert (record.state.exit_code, record.state.reason) == (137, "ContainerStatusUnknown")
    assert (record.restarts, record.identity) == (restarts, f"u-a-{restarts}")


def test_the_end_before_the_last_start_is_kept_for_the_next_kubelet() -> None:
    last = {"exitCode": 4, "reason": "Error", "startedAt": "2026-01-01T00:00:00Z"}
    written = {
        "restartCount": 1,
        "containerID": "process://x",
        "state": {"terminated": {"exitCode": 0, "reason": "Completed"}},
        "lastState": {"terminated": last},
    }
    record = _read(written, {}, {})
    assert record.last is not None
    assert (record.last.exit_code, record.last.started_at) == (4, "2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("written", "starts", "code"),
    [
        (None, {"a": 0}, 7),
        ({"restartCount": 0, "state": {"running": {}}}, {"a": 0}, 7),
        ({"restartCount": 0, "state": {"running": {}}}, {"a": 1}, 7),
        ({"restartCount": 1, "state": {"running": {}}}, {"a": 0}, 137),
        ({"restartCount": 0, "state": {"terminated": {"exitCode": 3}}}, {"a": 0}, 3),
    ],
)
def test_an_end_on_the_disk_counts_where_no_status_reports_it(
    written: dict[str, Any] | None, starts: dict[str, int], code: int
) -> None:
    given = {"containerID": "process://x", **written} if written else None
    record = _read(given, starts, {"a": ended(7, format_time(NOW), LATER)})
    assert isinstance(record.state, ContainerStateTerminated)
    assert record.state.exit_code == code


def test_a_container_without_status_and_log_has_not_run() -> None:
    record = _read(None, {"b": 0}, {})
    assert isinstance(record.state, ContainerStateWaiting)
    assert (record.restarts, record.identity) == (0, "")


def test_the_back_off_doubles_up_to_its_limit() -> None:
    assert [BackOff().delay(failures) for failures in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert BackOff().delay(10**6) == 60
