# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The demo: the programs that its first run builds, its preview, and its milestones."""

import io
import re
from pathlib import Path
from typing import Any

import pytest
from controller_runtime.envtest import ToolError

from trainerctl.cli import cluster, demo, parser
from trainerctl.cli.demo import Milestones, Observed, train_job
from trainerctl.cli.terminal import Console
from trainerctl.localcluster.options import Options


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=200)


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return tmp_path / "controller-runtime" / "bin"


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        (None, [r"Programs to build from source, once: etcd, kube-apiserver, .*, jobset-controller, kwok\.", ".*five minutes.*"]),
        (["kwok"], [r"Programs to build from source, once: kwok\."]),
        ([], []),
    ],
    ids=["all", "one", "none"],
)  # fmt: skip
def test_missing_programs_are_named_and_how_long_it_takes_to_build_all(
    missing: list[str] | None, said: list[str], cache: Path, console: Console
) -> None:
    for tool in Options().tools:
        if missing is not None and tool.name not in missing:
            directory = cache / tool.group.key
            directory.mkdir(parents=True, exist_ok=True)
            (directory / tool.name).touch()
            (directory / f"{tool.name}.json").write_text("[]")

    assert cluster.announce(Options().tools, console) == bool(said)

    lines = shown(console).splitlines()
    assert all(re.fullmatch(want, line) for want, line in zip(said, lines, strict=True)), lines


async def test_the_preview_explains_and_renders_the_demos_train_job(console: Console) -> None:
    await demo.preview(train_job(3), console)
    text = shown(console)
    assert "← spec.trainer.numNodes" in text
    assert "Result  JobSet hello-torch (pods: node 3)" in text
    assert "Applies JobSet hello-torch" in text


async def test_the_demo_shows_the_preview_while_its_programs_are_missing(
    cache: Path, console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_cluster: object) -> None:
        raise ToolError("Go is missing")

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("trainerctl.localcluster.cluster.Cluster.up", fail)
    with pytest.raises(ToolError):
        await demo.demo_command(parser.parse(["demo"]), console, Console(file=io.StringIO()))
    assert "Applies JobSet hello-torch" in shown(console)


def thing(kind: str, *conditions: str, phase: str = "") -> dict[str, Any]:
    status: dict[str, Any] = {"conditions": [{"type": each, "status": "True"} for each in conditions]}
    if phase:
        status["phase"] = phase
    return {"kind": kind, "metadata": {"name": kind.lower()}, "status": status}


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_each_step_is_taken_by_what_it_names() -> None:
    pods = [thing("Pod", phase="Running"), thing("Pod", phase="Succeeded"), thing("Pod", phase="Pending")]
    steps = Observed(thing("TrainJob"), [thing("JobSet")], [thing("Job", "SuccessCriteriaMet")], pods).steps(
        3
    )
    assert [step for step, taken in steps.items() if not taken] == [
        "3 pods running",
        "3 pods succeeded",
        "Job complete",
        "JobSet completed",
        "TrainJob complete",
    ]
    done = Observed(
        thing("TrainJob", "Complete"),
        [thing("JobSet", "Completed")],
        [thing("Job", "SuccessCriteriaMet", "Complete")],
        [thing("Pod", phase="Succeeded")] * 3,
    )
    assert all(done.steps(3).values())


def test_a_step_keeps_the_time_it_was_first_seen_at() -> None:
    clock = Clock()
    milestones = Milestones(1, clock)
    milestones.begin()
    clock.now += 1.5
    milestones.see(Observed(thing("TrainJob")))
    clock.now += 1
    milestones.see(Observed(thing("TrainJob"), [thing("JobSet")]))
    assert milestones.taken == {"TrainJob created": 1.5, "JobSet created": 2.5}


def test_a_step_is_not_later_than_the_steps_after_it() -> None:
    clock = Clock()
    milestones = Milestones(1, clock)
    milestones.begin()
    clock.now += 2  # the pod is listed after the JobSet, which did not exist yet
    milestones.see(Observed(thing("TrainJob"), pods=[thing("Pod", phase="Pending")]))
    clock.now += 2
    milestones.see(
        Observed(thing("TrainJob"), [thing("JobSet")], [thing("Job")], [thing("Pod", phase="Pending")])
    )
    assert milestones.times() == {
        **dict.fromkeys(Observed().steps(1)),
        **dict.fromkeys(["TrainJob created", "JobSet created", "Job created", "1 pods created"], 2.0),
    }


def test_a_failed_train_job_says_why() -> None:
    failed = thing("TrainJob", "Failed")
    failed["status"]["conditions"][0] |= {"reason": "FailedJobs", "message": "jobset failed"}
    assert Observed(failed).failure == "FailedJobs: jobset failed"
    assert Observed(thing("TrainJob", "Complete")).failure == ""
