# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Each injected cause is found; the objects and messages are those that components of Kubernetes write."""

import copy
import dataclasses
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pkg.why import LiveObject, State, diagnose
from pkg.why.causes import containers
from pkg.why.rules import CAUSES
from testkit.why.cases import (
    CASES,
    VARIANTS,
    drains,
)
from testkit.why.remedies import follow, said
from testkit.why.states import (
    crash_loop,
    fail_by,
    failed,
    huge_gang,
    managed,
    manager_scaled_down,
    missing,
    no_leader,
    pending_quota,
    preempted_and_deleted,
    refused,
)
from testkit.why.world import TrainJobObjects, condition

ANSWERS = Path(__file__).parents[2] / "testdata/why/answers.txt"
"""What why says in each case: RECORD_ANSWERS=1 pytest test/unit/why/test_causes.py writes it again."""
Case = tuple[str, int, str, Callable[[TrainJobObjects], Any]]


@pytest.mark.parametrize(("cause", "code", "words", "state"), CASES)
def test_the_injected_cause_is_the_answer(
    cause: str, code: int, words: str, state: Callable[[TrainJobObjects], Any]
) -> None:
    world = TrainJobObjects()
    state(world)

    verdict = world.verdict()

    assert [each.cause for each in verdict.findings[:1]] == [cause], verdict.to_dict()
    assert verdict.exit_code == code
    assert words in verdict.sentence
    first = verdict.findings[0]
    assert first.evidence
    assert first.advice.endswith(".") or "ctl " in first.advice.rpartition(": ")[2]


def test_the_state_in_json_is_a_word() -> None:
    world = TrainJobObjects()
    assert world.verdict().to_dict()["state"] == "running"
    crash_loop(world)
    assert world.verdict().to_dict()["state"] == "wrong"


def test_a_trainjob_of_another_cluster_runs_if_its_status_shows_ready_jobs() -> None:
    world = TrainJobObjects()
    managed(world)
    world.train_job["status"]["jobsStatus"] = [{"name": "node", "ready": 1}]

    verdict = world.verdict()

    assert (verdict.state, verdict.exit_code) == (State.RUNNING, 0)
    assert [(each.cause, each.severity) for each in verdict.findings] == [("managed-by", "note")]


def test_a_cause_of_many_pods_is_one_finding() -> None:
    world = TrainJobObjects(nodes=6)
    for number in range(6):
        world.waits("CreateContainerConfigError", 'secret "hf-token" not found', pod=number)

    (found,) = world.verdict().findings

    assert len(found.subjects) == 6
    assert found.about.endswith("and 3 more")


def test_the_container_that_failed_first_is_the_answer() -> None:
    world = TrainJobObjects(nodes=6)
    for number, (code, age) in enumerate([(1, 10), (1, 9), (1, 8), (1, 7), (1, 6), (139, 30)]):
        world.ended(code, pod=number, age=age)

    first, second = world.verdict().findings

    assert ("exit code 139" in first.summary, first.subjects) == (True, ("Pod llama-node-0-5-abcde",))
    assert second.subjects[0] == "Pod llama-node-0-0-abcde"
    assert next(containers.failed_containers(world.snapshot())).pod.name == "llama-node-0-5-abcde"


def test_the_line_that_shows_the_cause_is_evidence() -> None:
    world = TrainJobObjects()
    fail_by(1)(world)
    unresolved = "socket.gaierror: [Errno -2] Name or service not known"
    world.logs[world.pods[0]["metadata"]["name"], "node"] = [
        unresolved,
        *(f"torchrun: line {n}" for n in range(9)),
    ]

    first = world.verdict().findings[0]

    assert first.cause == "dns-failure"
    assert f"log of node: {unresolved}" in first.evidence


def test_kueue_resumes_a_trainjob_of_its_queues() -> None:
    world = TrainJobObjects(age=5)
    world.suspend()
    world.train_job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "team-queue"

    (suspended,) = [each for each in world.verdict().findings if each.cause == "suspended"]

    assert "trainerctl resume" not in suspended.advice


def test_events_of_other_objects_do_not_hide_the_disruption_of_a_failed_job() -> None:
    world = TrainJobObjects()
    world.event(world.job, "SuccessfulCreate", "Created pod: llama-node-0-0-abcde", kind="Normal")
    preempted_and_deleted(world)
    ours = [each for each in world.objects if each["kind"] == "Event"]
    assert ours[0]["involvedObject"]["kind"] == "Job"

    assert world.verdict().findings[0].cause == "preempted"


def test_the_two_newest_events_of_an_image_are_the_evidence() -> None:
    world = TrainJobObjects()
    world.waits("ErrImagePull", "connection refused")
    for number in range(3):
        text = f'Failed to pull image "registry.example/train:1": try {number}'
        world.event(world.pods[0], "Failed", text, age=10 + number)

    (found,) = world.verdict().findings

    assert [line[-5:] for line in found.evidence if "Failed to pull" in line] == ["try 0", "try 1"]


def test_whoever_created_a_trainjob_suspended_is_no_reason_to_wait_in_a_queue_of_kueue() -> None:
    world = TrainJobObjects()
    pending_quota("")(world)
    world.suspend("kubectl-create")

    assert [each.cause for each in world.verdict().findings] == ["queued"]


@pytest.mark.parametrize("node", [{}, {"allocatable": {"nvidia.com/gpu": "many"}}])
def test_the_size_of_a_gang_is_not_judged_by_nodes_of_unknown_size(node: dict[str, Any]) -> None:
    world = TrainJobObjects()
    huge_gang(world)
    world.nodes[0]["status"] = node

    assert "gang-too-large" not in {each.cause for each in world.verdict().findings}


@pytest.mark.parametrize("state", [manager_scaled_down, no_leader])
def test_a_manager_that_has_just_recorded_an_event_is_not_down(
    state: Callable[[TrainJobObjects], Any],
) -> None:
    world = TrainJobObjects()
    state(world)
    world.event(world.train_job, "TrainJobResourcesCreationFailed", "etcdserver: request timed out")

    assert [each.cause for each in world.verdict().findings] == ["creation-failed"]


def test_a_manager_that_runs_in_another_namespace_is_not_down() -> None:
    world = TrainJobObjects()
    manager_scaled_down(world)
    world.deployment("kubeflow-trainer-controller-manager", "trainer")

    assert [each.cause for each in world.verdict().findings] == ["manager-silent"]


def test_a_kind_that_cannot_be_read_is_named() -> None:
    world = TrainJobObjects()
    world.unread["Node"] = 'nodes is forbidden: User "ann" cannot list resource "nodes"'
    world.unread["Workload.kueue.x-k8s.io"] = "the kind is not installed"

    verdict = world.verdict()

    assert verdict.state is State.RUNNING
    assert verdict.unread == ('Node: nodes is forbidden: User "ann" cannot list resource "nodes"',)


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("Secret", {"volumes": [{"projected": {"sources": [{"secret": {"name": "x"}}]}}]}),
        ("ConfigMap", {"volumes": [{"projected": {"sources": [{"configMap": {"name": "x"}}]}}]}),
        ("Secret", {"containers": [{"envFrom": [{"secretRef": {"name": "x"}}]}]}),
        ("ConfigMap", {"initContainers": [{"envFrom": [{"configMapRef": {"name": "x"}}]}]}),
    ],
)
def test_a_missing_object_is_found_wherever_a_pod_refers_to_it(kind: str, spec: dict[str, Any]) -> None:
    world = TrainJobObjects()
    missing(kind, "x", **spec)(world)

    assert f"the {kind} x does not exist" in world.verdict().sentence


def test_the_event_of_a_scheduler_says_why_a_gang_without_a_condition_waits() -> None:
    world = TrainJobObjects()
    world.unscheduled()
    group = world.group("scheduling.volcano.sh/v1beta1", queue="team", status={"phase": "Inqueue"})
    world.event(group, "Unschedulable", "2/2 tasks in gang unschedulable")

    assert "2/2 tasks in gang unschedulable" in world.verdict().sentence


@pytest.mark.parametrize(
    ("version", "kind", "parts", "message", "words"),
    [
        (
            "v1", "LimitRange", {"spec": {"limits": [{"type": "Container", "max": {"memory": "8Gi"}}]}},
            'pods "x" is forbidden: maximum memory usage per Container is 8Gi, but limit is 16Gi',
            "LimitRange rules limits a Container: max memory 8Gi",
        ),
        (
            "admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration",
            {"webhooks": [{"name": "policy.example.com", "failurePolicy": "Fail",
                           "clientConfig": {"service": {"namespace": "policies", "name": "hook"}}},
                          {"name": "other.example.com", "clientConfig": {"url": "https://x"}}]},
            'Error creating: admission webhook "policy.example.com" denied the request: images must be signed',
            "ValidatingWebhookConfiguration rules has the webhook policy.example.com: Service policies/hook, failurePolicy Fail",
        ),
    ],
    ids=["limit range", "webhook"],
)  # fmt: skip
def test_the_rules_of_the_refusing_object_are_evidence(
    version: str, kind: str, parts: dict[str, Any], message: str, words: str
) -> None:
    world = TrainJobObjects()
    refused(message)(world)
    world.make(version, kind, "rules", **parts)

    evidence = world.verdict().findings[0].evidence

    assert [line for line in evidence if "rules" in line and not line.startswith("event")] == [words]


def test_every_cause_is_injected() -> None:
    notes = {"image-pulling", "no-effect", "expiring"}
    assert {case.values[0] for case in CASES} == set(CAUSES) - notes


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, Any]]:
    """Yield each map and list within ``data`` with each key or index, except ``apiVersion``, ``kind`` and ``metadata``."""
    for key, value in list(data.items() if isinstance(data, dict) else enumerate(data)):
        if path or key not in ("apiVersion", "kind", "metadata"):
            yield data, key
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


@pytest.mark.parametrize("seed", range(2))
def test_malformed_objects_do_no_harm(seed: int) -> None:
    rng = random.Random(seed)
    junk: list[Any] = [None, 3, -5, True, "x", "", [], {}, [None], [{}], {"a": {}}, "2026-01-01T00:00:00Z"]
    changed = 0
    for case in CASES:
        world = TrainJobObjects()
        case.values[-1](world)
        before = world.verdict().to_dict()
        world.objects = copy.deepcopy(world.objects)  # a copy, because other tests use the same parts
        for each in world.objects:
            for container, key in rng.sample(found := list(places(each)), min(2, len(found))):
                container[key] = rng.choice(junk)
        changed += diagnose(world.snapshot()).to_dict() != before  # names may be empty in commands
    assert changed > len(CASES) / 2


def test_a_pod_whose_container_waits_for_its_next_start_does_not_run() -> None:
    world = TrainJobObjects()
    for number in range(len(world.pods)):
        world.container(
            pod=number,
            phase="Running",
            restarts=3,
            waiting={"reason": "CrashLoopBackOff", "message": "back-off"},
        )
    assert " does not run: " in world.verdict().sentence


@pytest.mark.parametrize("is_over", [False, True], ids=["as it is", "failed, and its pods are removed"])
@pytest.mark.parametrize(("cause", "code", "words", "state"), CASES)
def test_no_remedy_leads_in_a_circle(
    cause: str, code: int, words: str, state: Callable[[TrainJobObjects], Any], is_over: bool
) -> None:
    world = TrainJobObjects()
    state(world)
    findings = world.verdict().findings
    if is_over:
        world.without_pods()
        if world.job in world.objects:
            failed(world, "BackoffLimitExceeded", "Job has reached the specified backoff limit")

    snapshot = world.snapshot()
    for each in findings:
        follow(snapshot, each.advice, ("why",))
    for verb in ("why", "logs", "events", "describe"):
        follow(snapshot, said(snapshot, verb, ""), (verb,))


def shown(world: TrainJobObjects) -> str:
    """Return everything that a verdict says, as text."""
    verdict = world.verdict()
    lines = [f"exit code {verdict.exit_code}: {verdict.sentence}"]
    for each in verdict.findings:
        lines += [f"- {each.cause} ({each.severity}), {each.about}: {each.summary}"]
        lines += [f"    {line}" for line in each.evidence]
        lines += [f"    > {each.advice}"]
    return "\n".join(lines)


def answers() -> dict[str, str]:
    """Return the recorded verdicts by the names of the cases."""
    parts = (part.partition("\n") for part in ANSWERS.read_text().split("## ")[1:])
    return {name: text.strip("\n") for name, _, text in parts}


def test_each_answer_is_as_recorded_word_for_word() -> None:
    states = [*((case.id, case.values[-1]) for case in CASES), *VARIANTS]
    found = {}
    for name, state in states:
        world = TrainJobObjects()
        state(world)
        found[name] = shown(world)
    if os.environ.get("RECORD_ANSWERS"):  # then read the difference: it is what users will see
        ANSWERS.write_text("\n".join(f"## {name}\n{text}\n" for name, text in found.items()))

    assert found == answers()
    assert len(found) == len(states)


def test_a_finished_job_set_without_jobs_lacks_none() -> None:
    world = TrainJobObjects()
    world.remove(world.job, *world.pods)
    world.job_set["status"]["conditions"] = [condition("Completed", age=5)]
    world.job_set["spec"]["replicatedJobs"][0]["template"] = {"spec": {"parallelism": -1}}

    assert "object-invalid" not in {each.cause for each in world.verdict().findings}


@pytest.mark.parametrize("is_over", [True, False])
def test_a_kept_pod_says_that_it_was_evicted_if_no_retry_was_left(is_over: bool) -> None:
    world = TrainJobObjects()
    drains(world)
    kept = [LiveObject(copy.deepcopy(pod)) for pod in world.pods]
    world.without_pods()
    if is_over:
        failed(world, "BackoffLimitExceeded", "Job has reached the specified backoff limit")

    found = diagnose(dataclasses.replace(world.snapshot(), removed_pods=kept)).findings

    assert ("evicted/drain" in [each.rule for each in found]) is is_over
