# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl diff``: the effect of a changed runtime on each TrainJob."""

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
from pkg import shipped
from pkg.apis.config.v1alpha1 import defaulted
from pkg.why import LiveObject
from testkit.why.world import TrainJobObjects, condition

from trainerctl.cli import diff
from trainerctl.cli.diff import Effect
from trainerctl.cli.terminal import Console
from trainerctl.offline.inputfiles import InputObject

OLD: dict[str, Any] = next(
    each for each in shipped.manifests("runtimes") if each["metadata"]["name"] == "torch-distributed"
)


def runtime(image: str = "new:1") -> InputObject:
    data = copy.deepcopy(OLD)
    pod = data["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["containers"][0]["image"] = image
    return InputObject(data, "runtime.yaml", 1)


def job(name: str = "llama", *, image: str = "", **status: Any) -> LiveObject:
    data = copy.deepcopy(TrainJobObjects().train_job)
    data["metadata"].update(name=name, uid=f"uid-{name}")
    data["status"] = status
    if image:
        data["spec"]["trainer"] = {"image": image}
    if status.get("suspended"):
        data["spec"]["suspend"] = status.pop("suspended")
    return LiveObject(data)


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
async def test_the_effect_depends_on_the_state_of_the_train_job(
    concerned: LiveObject, effect: Effect
) -> None:
    change = await diff.change_of(concerned, InputObject(OLD, "cluster", 1), runtime(), defaulted())

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

    change = await diff.change_of(job(**BUILT), InputObject(OLD, "cluster", 1), changed, defaulted())

    assert change.effect is Effect.REFUSED
    assert "containers" in change.lines[0]


RUNTIME = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: r}
spec:
  mlPolicy: {torch: {}}
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec: {template: {spec: {containers: [{name: node, image: x}]}}}
"""


@pytest.mark.parametrize(
    ("old", "new", "code", "words"),
    [
        ("metadata: {name: r}", "", 2, ":2: document 1 (ClusterTrainingRuntime): metadata.name: a name is expected"),
        ("{name: r}", "{generateName: r-}", 2, "metadata.name: a name is expected"),
        ("{name: r}", "{name: 5}", 2, "cannot unmarshal number into Go struct field ObjectMeta.name"),
        ("image: x", "image: 5", 2, "containers[0].image: Invalid value"),
        ("v1alpha1", "v2", 2, 'no matches for kind "ClusterTrainingRuntime" in version "trainer.kubeflow.org/v2"'),
        ("image: x", "image: x, comand: [a]", 1, "warning: "),
        (RUNTIME, f"{RUNTIME}---{RUNTIME}", 2, "document 2 (ClusterTrainingRuntime r): duplicate of"),
    ],
)  # fmt: skip
def test_a_runtime_is_judged_before_the_cluster_is_read(
    old: str, new: str, code: int, words: str, tool: Callable[..., tuple[int, str, str]]
) -> None:
    found, _, said = tool("diff --kubeconfig /absent", RUNTIME.replace(old, new))
    assert found == code
    assert words in said
    assert ("kubeconfig /absent: no such file" in said) == (code == 1)


async def test_equal_differences_are_printed_once_with_all_names() -> None:
    old, out = InputObject(OLD, "cluster", 1), io.StringIO()
    changes = [
        await diff.change_of(job(name, **BUILT), old, runtime(), defaulted()) for name in ("llama", "lima")
    ]
    changes.append(await diff.change_of(job("third", **BUILT, image="own:1"), old, runtime(), defaulted()))

    diff.print_changes(changes, Console(file=out))

    text = out.getvalue()
    assert text.count("image: new:1") == 1
    assert "team-a/llama, team-a/lima\n" in text
    assert "team-a/third  Running  none: its objects stay the same" in text


def test_each_reason_of_a_refusal_is_shown() -> None:
    out = io.StringIO()
    changes = [
        diff.Change(job(name), Effect.REFUSED, (f"TrainJob team-a/{name}: no {name}",)) for name in ("a", "b")
    ]
    diff.print_changes(changes, Console(file=out))
    assert "TrainJob team-a/a: no a" in out.getvalue()
    assert "TrainJob team-a/b: no b" in out.getvalue()
