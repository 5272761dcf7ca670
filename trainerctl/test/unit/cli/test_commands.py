# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Commands that read a cluster, from the objects of an API server in memory to the lines that they print."""

import io
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Unstructured
from pkg import shipped
from testkit.why.world import TrainJobObjects, condition

from trainerctl.cli import change, diff, events, get, live, logs, parser
from trainerctl.cli.terminal import Console

COMMANDS = {
    "delete": change.delete_command,
    "diff": diff.diff_command,
    "events": events.events_command,
    "get": get.get_command,
    "logs": logs.logs_command,
}
Run = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
def world() -> TrainJobObjects:
    return TrainJobObjects()


@pytest.fixture
def texts() -> dict[tuple[str, str, str], str]:
    """Return the logs by namespace, pod and container."""
    pods = ("llama-node-0-0-abcde", "llama-node-0-1-abcde")
    return {("team-a", pod, "node"): f"first of {pod}\n\tlast\n" for pod in pods}


@pytest.fixture
def run(
    world: TrainJobObjects,
    texts: dict[Any, str],
    connected: Callable[[Any], live.Connection],
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Return a function that runs a command, and returns its exit code and what it has written to both streams."""

    async def run(*words: str) -> tuple[int, str, str]:
        client = FakeClient(*map(Unstructured.wrap, world.objects))
        client.logs.update(texts)
        connected(client)
        out, err = io.StringIO(), io.StringIO()
        consoles = (Console(file=each, width=200) for each in (out, err))
        code = await COMMANDS[words[0]](parser.parse(words), *consoles)
        return code, out.getvalue(), err.getvalue() + capsys.readouterr().err

    return run


FIRST, SECOND = "first of llama-node-0-0-abcde", "first of llama-node-0-1-abcde"
TAB = " " * 8


def _failed(world: TrainJobObjects) -> None:
    """Let rank 1 fail."""
    (status,) = world.pods[1]["status"]["containerStatuses"]
    status["state"] = {"terminated": {"exitCode": 3, "reason": "Error", "finishedAt": "2026-03-02T11:59:00Z"}}


def _waits(world: TrainJobObjects) -> None:
    (status,) = world.pods[0]["status"]["containerStatuses"]
    status["state"] = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}


NOT_STARTED = (
    "container node of llama-node-0-0-abcde has not started (ErrImagePull: no such image); "
    "see trainerctl why llama -n team-a"
)
NO_EARLIER = (
    "container node of llama-node-0-1-abcde has not restarted, and no earlier pod of its rank is left"
)


@pytest.mark.parametrize(
    ("change", "words", "code", "lines", "said"),
    [
        (None, "", 0, [FIRST, f"{TAB}last"], ""),
        (None, "--rank 1 --tail 1", 0, [f"{TAB}last"], ""),
        (None, "--all", 0, [f"[node 0] {FIRST}", f"[node 0] {TAB}last", f"[node 1] {SECOND}", f"[node 1] {TAB}last"], ""),
        (_failed, "", 0, [SECOND, f"{TAB}last"], "Rank 1 of step node failed first (exit code 3). For others, add"),
        (_waits, "", 1, [], NOT_STARTED),
        (_failed, "--previous", 1, [], NO_EARLIER),
        (None, "--rank 7", 1, [], "no pod of step node matches; see trainerctl get llama -n team-a"),
    ],
)  # fmt: skip
async def test_logs_are_those_of_the_rank_that_says_most(
    world: TrainJobObjects, run: Run, change: Any, words: str, code: int, lines: list[str], said: str
) -> None:
    if change is not None:
        change(world)
    found = await run("logs", "llama", *words.split())
    assert (found[0], found[1].splitlines()) == (code, lines)
    assert said in found[2]
    assert bool(found[2]) == bool(said)


async def test_a_log_without_a_line_is_told_with_the_end_of_its_container(
    world: TrainJobObjects, texts: dict[Any, str], run: Run
) -> None:
    texts.clear()
    _failed(world)
    end = "container node of llama-node-0-1-abcde wrote no log and ended with exit code 3 (Error)"
    assert await run("logs", "llama", "--rank", "1") == (0, "", f"trainerctl: note: {end}\n")
    assert (await run("logs", "llama", "--rank", "0"))[2].endswith("llama-node-0-0-abcde wrote no log\n")


async def test_a_followed_log_ends_with_the_train_job(world: TrainJobObjects, run: Run) -> None:
    world.train_job["status"]["conditions"] = [condition("Complete")]
    assert await run("logs", "llama", "--follow") == (0, f"{FIRST}\n{TAB}last\n", "")


async def test_train_jobs_are_listed_as_a_table_as_names_or_as_they_are_stored(
    world: TrainJobObjects, run: Run
) -> None:
    other = world.make("trainer.kubeflow.org/v1alpha1", "TrainJob", "other", namespace="team-b", spec={})
    names = "trainjob.trainer.kubeflow.org/llama\n"
    assert await run("get", "-o", "name") == await run("get", "llama", "-o", "name") == (0, names, "")
    code, out, _ = await run("get", "-A", "-o", "json")
    assert [each["metadata"]["name"] for each in json.loads(out)["items"]] == ["llama", "other"]
    assert yaml.safe_load((await run("get", "llama", "-o", "yaml"))[1])["kind"] == "TrainJob"
    rows = [line.split()[:2] for line in (await run("get", "-A"))[1].splitlines()]
    assert (code, rows) == (0, [["NAMESPACE", "NAME"], ["team-a", "llama"], ["team-b", "other"]])
    assert (await run("get", "llama"))[1].splitlines()[1].split()[:2] == ["TrainJob/llama", "Running"]
    world.remove(world.train_job, other)
    assert await run("get") == (0, "", "trainerctl: no TrainJobs found in namespace team-a\n")
    assert await run("get", "-A") == (0, "", "trainerctl: no TrainJobs found\n")


async def test_a_missing_train_job_does_not_keep_the_others_from_deletion(run: Run) -> None:
    code, out, err = await run("delete", "a", "llama")
    assert (code, out) == (1, "trainjob team-a/llama deleted\n")
    assert 'trainjobs.trainer.kubeflow.org "a" not found' in err


async def test_events_of_one_type_are_printed_the_oldest_first(world: TrainJobObjects, run: Run) -> None:
    world.event(world.pods[0], "Pulled", "an image", age=5, kind="Normal")
    world.event(world.job_set, "BackOff", "a restart", age=9)
    code, out, _ = await run("events", "llama")
    assert [line.split()[1:4] for line in out.splitlines()[1:]] == [
        ["Warning", "BackOff", "JobSet/llama"],
        ["Normal", "Pulled", "Pod/llama-node-0-0-abcde"],
    ]
    _, out, _ = await run("events", "llama", "--types", "Normal", "-o", "json")
    assert (code, [each["reason"] for each in json.loads(out)["items"]]) == (0, ["Pulled"])


async def test_a_changed_runtime_is_compared_with_that_of_the_cluster_for_each_of_its_train_jobs(
    world: TrainJobObjects, run: Run, tmp_path: Path
) -> None:
    runtime = next(
        each for each in shipped.manifests("runtimes") if each["metadata"]["name"] == "torch-distributed"
    )
    file = tmp_path / "runtime.yaml"
    file.write_text(yaml.safe_dump(runtime))
    for name in ("kept", "ended", "other"):
        job = world.make(
            "trainer.kubeflow.org/v1alpha1", "TrainJob", name, spec=dict(world.train_job["spec"])
        )
        job["status"] = {"conditions": [condition("Complete")]} if name == "ended" else {}
    job["spec"]["runtimeRef"] = {"name": "another", "kind": "ClusterTrainingRuntime"}
    for name in ("kept", "ended"):
        world.make("v1", "ConfigMap", f"{name}-runtime-snapshot")

    async def shown() -> tuple[int, list[str], str]:
        code, out, err = await run("diff", "-f", str(file))
        return code, [" ".join(line.split()) for line in out.splitlines() if "  " in line], err

    others = [
        "TRAINJOB STATE EFFECT",
        "team-a/ended Complete none: it has ended",
        "team-a/kept Pending none: it keeps the runtime that it started with",
    ]
    code, rows, said = await shown()
    assert (code, rows[:3]) == (1, others)
    assert rows[3] == "team-a/llama Pending at once: it is suspended, or has no objects yet"
    assert said.endswith(
        "ClusterTrainingRuntime torch-distributed does not exist in the cluster; it is new\n"
    )
    world.objects.append({**runtime, "metadata": {**runtime["metadata"], "uid": "1", "resourceVersion": "7"}})
    assert await shown() == (0, [*others, "team-a/llama Pending none: its objects stay the same"], "")

    runtime["kind"] = world.train_job["spec"]["runtimeRef"]["kind"] = "TrainingRuntime"  # of all three
    file.write_text(yaml.safe_dump(runtime))
    assert (await shown())[2].startswith("trainerctl: TrainingRuntime torch-distributed does not exist")
    world.objects.append({**runtime, "metadata": {**runtime["metadata"], "namespace": "team-a"}})
    assert await shown() == (0, [*others, "team-a/llama Pending none: its objects stay the same"], "")
