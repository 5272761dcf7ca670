# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What why says of a TrainJob that runs or starts: since when its containers run, their last output, and a hang."""

import dataclasses
from typing import Any

import pytest
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Unstructured

from pkg.why import State, diagnose, kinds, reading
from testkit.why.remedies import mistakes
from testkit.why.world import NOW, TrainJobObjects, when


def running(world: TrainJobObjects, seconds: float) -> None:
    for number in range(2):
        world.container(pod=number, phase="Running", running={"startedAt": when(seconds)})


def stamped(seconds: float, words: str) -> str:
    return f"{when(seconds)} {words}"


def known(world: TrainJobObjects, **outputs: list[str]) -> tuple[str, ...]:
    snapshot = dataclasses.replace(world.snapshot(), outputs=of_pods(world, outputs))
    verdict = diagnose(snapshot)
    assert verdict.exit_code == 0
    assert verdict.to_dict()["known"] == list(verdict.known)
    assert list(mistakes("\n".join(verdict.known))) == []
    return verdict.known


def of_pods(world: TrainJobObjects, outputs: dict[str, list[str]]) -> dict[tuple[str, str], list[str]]:
    names = [pod["metadata"]["name"] for pod in world.pods]
    return {(name, "node"): lines for name, lines in zip(names, outputs.values(), strict=False)}


def test_the_last_output_of_each_rank_and_its_age_are_shown() -> None:
    world = TrainJobObjects()
    running(world, 600)

    assert known(world, a=[stamped(40, "step 1"), stamped(20, "step 2"), stamped(19, " ")], b=[]) == (
        "container node of Pod llama-node-0-0-abcde has run for 10m; its last output, 20s ago: step 2",
        "container node of Pod llama-node-0-1-abcde has run for 10m and has printed nothing",
    )


def test_without_permission_to_read_logs_only_the_running_time_is_known() -> None:
    world = TrainJobObjects()
    running(world, 60)

    assert known(world) == (
        "container node of Pod llama-node-0-0-abcde has run for 60s",
        "container node of Pod llama-node-0-1-abcde has run for 60s",
    )


@pytest.mark.parametrize(
    ("age", "reported", "is_local", "advice"),
    [
        pytest.param(299, None, False, "", id="not yet"),
        pytest.param(300, None, False, "py-spy dump --subprocesses --pid 1", id="silent"),
        pytest.param(300, 10, False, "", id="reports progress"),
        pytest.param(300, 900, False, "py-spy dump --subprocesses --pid 1", id="no longer reports progress"),
        pytest.param(
            300, None, True, "sh -c 'py-spy dump --subprocesses --pid ${CONTAINER_PID:-1}'", id="local"
        ),
    ],
)
def test_a_training_that_has_printed_nothing_for_five_minutes_may_hang(
    age: float, reported: float | None, is_local: bool, advice: str
) -> None:
    world = TrainJobObjects()
    running(world, 600)
    if reported is not None:
        world.train_job["status"]["trainerStatus"] = {"lastUpdatedTime": when(reported)}
    if is_local:
        world.nodes[0]["metadata"]["annotations"] = {kinds.LOCAL_CLUSTER: "default"}

    shown = known(world, a=[stamped(age, "step 7")], b=[stamped(age + 9, "step 7")])

    hang = "if it hangs, look inside: trainerctl exec llama -n team-a --step node --rank 0 -- "
    assert [each for each in shown if each.startswith("if it hangs")] == ([hang + advice] if advice else [])
    assert any(each.startswith("the pods reported their progress") for each in shown) is (
        reported is not None
    )


def test_long_lines_and_progress_bars_are_shortened() -> None:
    world = TrainJobObjects()
    running(world, 60)

    first, second = known(
        world,
        a=["2026-03-02T11:59:58.123456789Z 10%\r 20%\r 30% of\tit"],
        b=[stamped(5, "x" * 1000), "no time"],
    )

    assert first.endswith("ago: 30% of it")
    assert second.endswith(f"ago: {'x' * 120}…")


def test_an_init_container_that_runs_is_named_and_its_log_is_the_advice() -> None:
    world = TrainJobObjects()
    for number in range(2):
        world.container(pod=number, init=True, running={"startedAt": when(400)})
    name = world.pods[0]["status"]["initContainerStatuses"][0]["name"]
    pod = world.pods[0]["metadata"]["name"]

    snapshot = dataclasses.replace(world.snapshot(), outputs={(pod, name): [stamped(400, "waiting for db")]})
    verdict = diagnose(snapshot)

    assert verdict.state is State.STARTING
    assert (
        f"init container {name} of Pod {pod} has run for 6m; its last output, 6m ago: waiting for db"
        in verdict.known
    )
    assert verdict.known[-1].startswith(
        "if it hangs, read its log: trainerctl logs llama -n team-a --step node --rank 0"
    )


def without_jobs(world: TrainJobObjects) -> None:
    world.remove(world.job, *world.pods, world.service)


def without_pods(world: TrainJobObjects) -> None:
    world.without_pods()
    world.job["status"] = {}


def pulling(world: TrainJobObjects) -> None:
    for number in range(2):
        world.waits("ContainerCreating", pod=number)


@pytest.mark.parametrize(
    ("arrange", "line"),
    [
        (TrainJobObjects.without_children, "its JobSet does not exist yet"),
        (without_jobs, "its JobSet has no Jobs yet"),
        (without_pods, "Job llama-node-0, 5s old, lacks 2 pods"),
        (
            pulling,
            "Pod llama-node-0-0-abcde, 5s old, on node worker-0, container node waits: ContainerCreating",
        ),
    ],
)
def test_a_train_job_that_starts_says_what_exists(arrange: Any, line: str) -> None:
    world = TrainJobObjects(age=5)
    arrange(world)

    assert line in known(world)


def test_a_verdict_with_a_cause_needs_no_other_facts() -> None:
    world = TrainJobObjects()
    world.waits("CrashLoopBackOff", "back-off 40s")

    assert diagnose(world.snapshot()).known == ()


async def test_the_last_lines_of_running_containers_are_read_unless_something_has_failed() -> None:
    world = TrainJobObjects()
    running(world, 600)
    for each in world.objects:
        if each["kind"] in ("Job", "Pod"):
            each["metadata"].setdefault("labels", {})["jobset.sigs.k8s.io/jobset-name"] = "llama"
    names = [pod["metadata"]["name"] for pod in world.pods]

    def client() -> FakeClient:
        made = FakeClient(*(Unstructured.wrap(each) for each in world.objects))
        for name in names:
            made.logs["team-a", name, "node"] = "".join(f"{stamped(9 - n, f'step {n}')}\n" for n in range(9))
        return made

    asked = client()
    found = await reading.take(asked, "team-a", "llama", NOW)
    world.ended(1, pod=0)
    failed = await reading.take(client(), "team-a", "llama", NOW)

    assert {key: lines[-1].partition(" ")[2] for key, lines in found.outputs.items()} == {
        (name, "node"): "step 8" for name in names
    }
    assert all(len(lines) == 5 for lines in found.outputs.values())
    logs = [call.options for call in asked.calls if call.subresource == "log"]
    assert len(logs) == 2
    assert all(each["timestamps"] and not each.get("previous") for each in logs)
    assert (dict(failed.outputs), list(failed.logs)) == ({}, [(names[0], "node")])


def test_an_init_container_that_keeps_a_rank_from_starting_is_shown_beside_the_running_ranks() -> None:
    world = TrainJobObjects()
    world.container(pod=0, phase="Running", running={"startedAt": when(60)})
    world.container(pod=1, init=True, running={"startedAt": when(50)})

    assert known(world) == (
        "container node of Pod llama-node-0-0-abcde has run for 60s",
        "init container node of Pod llama-node-0-1-abcde has run for 50s",
    )
