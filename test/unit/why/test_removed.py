# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A failed Job has deleted its pods: the events that remain say how their containers ended."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest

from pkg.why import LiveObject, State, diagnose
from pkg.why.terminations import REASON, Termination, parse
from testkit.why.states import failed
from testkit.why.world import TrainJobObjects, when

POD = "llama-node-0-0-abcde"


def text(code: int = 1, reason: str = "Error", message: str = "", **parts: Any) -> str:
    said: dict[str, Any] = {"pod": POD, "step": "node", "container": "node", "is_init": False} | parts
    return str(Termination(exit_code=code, reason=reason, message=message, **said))


def removed(*messages: str, age: float = 5) -> TrainJobObjects:
    """Return a TrainJob whose Job has failed and removed its pods."""
    world = TrainJobObjects()
    world.without_pods()
    failed(world, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    for message in messages:
        world.event(world.train_job, REASON, message, age=age)
    return world


@pytest.mark.parametrize(
    ("message", "cause", "summary"),
    [
        (text(137, "OOMKilled"), "out-of-memory", "the container node used more memory than its limit of 16Gi"),
        (text(128, "StartError", 'exec: "torchrunn": executable file not found in $PATH'), "command-not-found", "cannot be executed"),
        (text(127, message="sh: 1: torchrunn: not found"), "command-not-found", "cannot execute a command (exit code 127): sh: 1: torchrunn: not found"),
        (text(1, message="ValueError: bad learning rate"), "container-failed", "the container node failed with exit code 1"),
        (text(1, message="socket.gaierror: Name or service not known"), "dns-failure", "cannot resolve a host name"),
        (text(5, container="prepare", is_init=True), "container-failed", "the init container prepare of step node failed"),
        ("(combined from similar events): " + text(139), "container-failed", "exit code 139, SIGSEGV"),
    ],
)  # fmt: skip
def test_the_cause_is_known_after_the_pods_are_removed(message: str, cause: str, summary: str) -> None:
    verdict = removed(message).verdict()

    first = verdict.findings[0]
    assert (verdict.state, verdict.exit_code, first.cause) == (State.WRONG, 1, cause)
    assert summary in first.summary
    assert any(line.endswith(", the pod is removed") for line in first.evidence)
    assert "retries-exhausted" in {each.cause for each in verdict.findings}


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ('…in.py", line 88, in <module> loss.backward() ValueError: bad rate', ": ValueError: bad rate"),
        (
            'File "a.py", line 8, in f raise E KeyError: \'x\' File "b.py", line 9, in g OSError: full',
            ": OSError: full",
        ),
        ('File "a.py", line 8, in f assert x AssertionError', ": AssertionError"),
        ("ValueError: bad rate", ""),
    ],
)
def test_the_error_after_a_traceback_is_found_in_the_one_line_of_an_event(message: str, said: str) -> None:
    first = removed(text(1, message=message)).verdict().findings[0]

    assert first.summary == f"the container node failed with exit code 1{said}"


def test_while_the_failed_pods_exist_the_advice_is_to_read_their_logs() -> None:
    world = TrainJobObjects()
    world.ended(1)
    failed(world, "BackoffLimitExceeded", "Job has reached the specified backoff limit")

    (advice,) = [each.advice for each in world.verdict().findings if each.cause == "retries-exhausted"]

    assert advice.startswith("Read the logs: trainerctl logs llama -n team-a --step node --all.")


def test_a_pod_that_exists_says_more_than_the_event_about_it() -> None:
    world = TrainJobObjects()
    world.ended(137, "OOMKilled")
    failed(world, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    world.event(world.train_job, REASON, text(1))

    assert [each.cause for each in world.verdict().findings] == ["out-of-memory", "retries-exhausted"]


@pytest.mark.parametrize("age", [301, 1000])
def test_events_of_an_earlier_run_of_the_job_set_do_not_count(age: float) -> None:
    found = removed(text(137, "OOMKilled"), age=age).verdict().findings

    assert [each.cause for each in found] == ["retries-exhausted"]


def test_a_train_job_that_runs_again_is_not_called_wrong() -> None:
    world = TrainJobObjects()
    world.event(world.train_job, REASON, text(137, "OOMKilled", pod="llama-node-0-0-gone0"))

    verdict = world.verdict()

    assert (verdict.state, verdict.findings) == (State.RUNNING, ())


@pytest.mark.parametrize(
    "message", ["", "Container", text().replace("exit code 1", "exit code x"), "x" * 10_000, text()[:40]]
)
def test_other_texts_are_no_termination(message: str) -> None:
    assert parse(message) is None
    assert [each.cause for each in removed(message).verdict().findings] == ["retries-exhausted"]


@pytest.mark.parametrize("reason", ["OOMKilled", "a b", "", "x" * 65, "é"])
def test_what_is_written_is_read(reason: str) -> None:
    said = Termination("pod-0", "node", "node", False, 255, reason, "one\ntwo: (three)")

    found = parse(str(said))

    assert found is not None
    assert (found.pod, found.exit_code, found.message) == ("pod-0", 255, "one two: (three)")
    assert found.reason == (reason if reason == "OOMKilled" else "Error")


def test_the_events_of_removed_pods_and_jobs_are_found_by_their_names() -> None:
    world = removed()
    for kind, name, age in (
        ("Pod", POD, 5),
        ("Pod", "llama-node-0-11-zzzzz", 5),
        ("Job", "llama-node-1", 5),
        ("JobSet", "llama", 5),
        ("Pod", "llama-node-0-0-old00", 1000),  # of an earlier TrainJob with the same name
        ("Pod", "llama-2-node-0-0-abcde", 5),
        ("Pod", "llama-other-0-0-abcde", 5),
        ("Service", "llama", 5),
    ):
        world.event({"kind": kind, "metadata": {"name": name, "uid": f"gone-{name}"}}, "Reason", "x", age=age)
    world.event(world.job, "BackoffLimitExceeded", "x")

    found = [each.text("involvedObject", "name") for each in world.snapshot().events_of_removed()]

    assert sorted(found) == ["llama", "llama-node-0-0-abcde", "llama-node-0-11-zzzzz", "llama-node-1"]


def test_kept_pods_say_more_than_the_events_of_an_earlier_attempt_in_the_same_second() -> None:
    world = removed(text(1, pod="llama-node-0-0-first", message="ValueError: first attempt"), age=300)
    kept = copy.deepcopy(world.pods[0])
    kept["status"]["containerStatuses"][0]["state"] = {"terminated": {"exitCode": 3, "finishedAt": when(60)}}
    kept["metadata"].update(name="llama-node-0-0-last0", uid="last")
    snapshot = dataclasses.replace(world.snapshot(), removed_pods=[LiveObject(kept)])

    found = [each for each in diagnose(snapshot).findings if each.cause == "container-failed"]

    assert [each.subjects for each in found] == [("Pod llama-node-0-0-last0",)]


def test_the_restarts_of_a_job_set_that_has_failed_are_evidence() -> None:
    world = removed()
    world.job_set["spec"]["failurePolicy"] = {"maxRestarts": 2}
    world.job_set["status"]["restarts"] = 2

    evidence = world.verdict().findings[0].evidence

    assert "JobSet llama was restarted 2 times; its failurePolicy permits 2" in evidence


def test_a_removed_pod_says_that_it_reached_its_deadline() -> None:
    world = TrainJobObjects()
    world.ended(143)
    world.pods[0]["status"].update(reason="DeadlineExceeded", message="Pod was active too long")
    kept = [LiveObject(world.pods[0])]
    world.remove(world.pods[0])

    found = diagnose(dataclasses.replace(world.snapshot(), removed_pods=kept)).findings

    assert "deadline-exceeded" in [each.cause for each in found]
