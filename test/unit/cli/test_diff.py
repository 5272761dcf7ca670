# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl diff``: what a changed runtime does to each TrainJob."""

import copy
import io
from typing import Any

import pytest
from why_world import World, condition

from pkg.cli import diff, new
from pkg.cli.diff import Effect
from pkg.cli.terminal import Console
from pkg.offline.inputfiles import InputObject
from pkg.why import Thing

OLD: dict[str, Any] = new.runtimes()["torch-distributed"]


def runtime(image: str = "new:1") -> InputObject:
    data = copy.deepcopy(OLD)
    pod = data["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["containers"][0]["image"] = image
    return InputObject(data, "runtime.yaml", 1)


def job(name: str = "llama", *, image: str = "", **status: Any) -> Thing:
    data = copy.deepcopy(World().train_job)
    data["metadata"].update(name=name, uid=f"uid-{name}")
    data["status"] = status
    if image:
        data["spec"]["trainer"] = {"image": image}
    if status.get("suspended"):
        data["spec"]["suspend"] = status.pop("suspended")
    return Thing(data)


BUILT: dict[str, Any] = {
    "jobsStatus": [{"name": "node", "ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}]
}


@pytest.mark.parametrize(
    ("concerned", "effect"),
    [
        (job(**BUILT), Effect.LATER),
        (job(**BUILT, suspended=True), Effect.NOW),
        (job(), Effect.NOW),
        (job(**BUILT, image="own:1"), Effect.SAME),
        (job(conditions=[condition("Complete", reason="AllJobsCompleted")]), Effect.NONE),
        (job(conditions=[condition("Failed", reason="FailedJobs")]), Effect.NONE),
    ],
)
async def test_the_effect_depends_on_the_state_of_the_train_job(concerned: Thing, effect: Effect) -> None:
    change = await diff.change_of(concerned, InputObject(OLD, "cluster", 1), runtime(), "2.1")

    assert change.effect is effect
    if effect in (Effect.LATER, Effect.NOW):
        changed = [
            line.strip() for line in change.lines if line[:1] in "+-" and line[:3] not in ("+++", "---")
        ]
        assert [line[1:].strip() for line in changed] == [
            f"image: {OLD['spec']['template']['spec']['replicatedJobs'][0]['template']['spec']['template']['spec']['containers'][0]['image']}",
            "image: new:1",
        ]


async def test_a_runtime_that_refuses_the_train_job_is_named() -> None:
    changed = runtime()
    del changed.data["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"][
        "containers"
    ]

    change = await diff.change_of(job(**BUILT), InputObject(OLD, "cluster", 1), changed, "2.1")

    assert change.effect is Effect.REFUSED
    assert "containers" in change.lines[0]


async def test_equal_differences_are_printed_once_with_all_names() -> None:
    old, out = InputObject(OLD, "cluster", 1), io.StringIO()
    changes = [await diff.change_of(job(name, **BUILT), old, runtime(), "2.1") for name in ("llama", "lima")]
    changes.append(await diff.change_of(job("third", **BUILT, image="own:1"), old, runtime(), "2.1"))

    diff.print_changes(changes, Console(file=out))

    text = out.getvalue()
    assert text.count("image: new:1") == 1
    assert "team-a/llama, team-a/lima\n" in text
    assert "team-a/third  Running  none: its objects stay the same" in text
