# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl explain``: how a TrainJob becomes its objects, stage by stage, and what each change is due to."""

from __future__ import annotations

import argparse
import json
import shlex
from dataclasses import dataclass, field
from typing import Any, Final

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainingRuntimeSpec, TrainJob
from pkg.cli import options, render
from pkg.cli.terminal import Console
from pkg.offline import trainjobs
from pkg.offline.trace.causes import Causes
from pkg.offline.trace.diff import ABSENT, Change, Item, Path
from pkg.offline.trace.diff import render as render_path
from pkg.offline.trace.pipeline import PipelineObserver, State, Step, add_objects
from pkg.offline.trainjobs import Offline, Subject
from pkg.runtime import core

_STAGES: Final = {
    "EnforceMLPolicy": "carries out the runtime's mlPolicy",
    "EnforcePodGroupPolicy": "carries out the runtime's podGroupPolicy",
    "PodNetwork": "names the pods",
    "ComponentBuilder": "builds the objects",
}
_JOB: Final = ("spec", "replicatedJobs")
_POD: Final = ("template", "spec", "template")
_IDENTITY: Final = (("apiVersion",), ("kind",))
_OF_METADATA: Final = (("name",), ("namespace",), ("ownerReferences",))
_WHOLE_POLICIES: Final = {
    f"runtime's {name}"
    for name in (
        "mlPolicy",
        "mlPolicy.torch",
        "mlPolicy.mpi",
        "podGroupPolicy",
        "podGroupPolicy.coscheduling",
    )
}
"""What a plugin is there for, which its name says."""
_WIDTH: Final = 70


@dataclass(slots=True)
class Explanation:
    """One TrainJob's way through the pipeline."""

    subject: Subject
    pipeline: PipelineObserver
    causes: Causes = field(default_factory=Causes)
    refusal: str | None = None


async def explain_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Print the explanations; 1 if one ends in a refusal."""
    given = await options.load(arguments)
    options.say_warnings(given, err)
    explained = [await explain(given, subject) for subject in given.subjects]
    for each in explained:
        if each.refusal is None:
            each.refusal = await trainjobs.denial(given, each.subject.train_job)
    if arguments.output == "text":
        for each in explained:
            print_text(each, out)
    else:
        data = {"explanations": [as_data(each) for each in explained]}
        (out.write_json if arguments.output == "json" else out.write_yaml)(data)
    for each in explained:
        if each.refusal is not None:
            options.say(err, each.refusal)
    return 1 if any(each.refusal is not None for each in explained) else 0


async def explain(given: Offline, subject: Subject) -> Explanation:
    """Run the pipeline with an observer, then look for what the changes are due to."""
    explanation = Explanation(subject, PipelineObserver(subject.train_job, render.document))
    served = given.runtimes[core.TRAINING_RUNTIME_GROUP_KIND]
    if not isinstance(served, core.TrainingRuntime):
        raise TypeError(f"{core.TRAINING_RUNTIME_GROUP_KIND} is served by a {type(served).__name__}")
    served.observe(explanation.pipeline)
    try:
        await trainjobs.objects(given, subject.train_job)
    except trainjobs.RefusedError as error:
        explanation.refusal = str(error)
        return explanation
    finally:
        served.observe(None)

    async def run(spec: TrainingRuntimeSpec, train_job: TrainJob) -> State:
        return add_objects({}, await served.objects_from(spec, train_job), render.document)

    await explanation.causes.find(await _spec(given, subject.train_job), subject.train_job, run)
    return explanation


async def _spec(given: Offline, train_job: TrainJob) -> TrainingRuntimeSpec:
    ref = train_job.spec.runtime_ref
    if ref.kind == TrainingRuntime.gvk.kind:
        return (await given.client.get(TrainingRuntime, (train_job.namespace, ref.name))).spec
    return (await given.client.get(ClusterTrainingRuntime, ("", ref.name))).spec


def as_data(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation as JSON."""
    steps = [
        {
            "stage": step.stage,
            **({"by": step.author} if step.author else {}),
            **({"stoodAside": step.aside} if step.aside else {}),
            **({"notes": list(step.notes)} if step.notes else {}),
            "changes": [_change_data(change, explanation.causes.of(change)) for change in step.changes],
        }
        for step in explanation.pipeline.steps
    ]
    return {
        "trainJob": str(explanation.subject.train_job.key),
        "runtime": explanation.subject.runtime,
        **({"refused": explanation.refusal} if explanation.refusal else {}),
        "steps": steps,
    }


def _change_data(change: Change, causes: list[str]) -> dict[str, Any]:
    shown: dict[str, Any] = {"path": change.where}
    if change.before is not ABSENT:
        shown["before"] = change.before
    if change.after is not ABSENT:
        shown["after"] = change.after
    return {**shown, **({"dueTo": causes} if causes else {})}


def print_text(explanation: Explanation, out: Console) -> None:
    """Print an explanation for people."""
    subject = explanation.subject
    out.say((subject.document.name, "bold"), " on ", (subject.runtime, "bold"))
    stage = None
    told: set[str] = set()
    for step in explanation.pipeline.steps:
        changes = [change for change in step.changes if not _is_obvious(change)]
        news = step.aside is not None and step.author not in told
        if not (changes or step.notes or news):
            continue
        if step.stage != stage:
            stage = step.stage
            about = _STAGES.get(stage)
            out.say("\n", (stage, "bold cyan"), (f"  {about}" if about else "", "dim"))
        if step.aside is not None:
            told.add(step.author)
        _print_step(explanation, step, changes, out)
    if explanation.refusal is None:
        made = [_summary(name, data) for name, data in explanation.pipeline.state.items()]
        out.say("\n", ("Result", "bold cyan"), f"  {', '.join(made) or 'nothing'}\n")
    else:
        out.say("\n", ("Refused", "bold red"), f"  {explanation.refusal}\n")


def _print_step(explanation: Explanation, step: Step, changes: list[Change], out: Console) -> None:
    if step.aside is not None:
        out.say(f"  {step.author}", (f"  stood aside: {step.aside}", "dim"))
    elif step.author:
        out.say((f"  {step.author}", "bold"))
    for note in step.notes:
        out.say(f"    {note}")
    group = None
    shown = [(*_place(change.path), change) for change in changes]
    width = min(max((len(rest) for _, rest, _ in shown), default=0), 40)
    for where, rest, change in shown:
        if where != group:
            group = where
            out.say((f"    {where}", "italic"))
        causes = [cause for cause in explanation.causes.of(change) if cause not in _WHOLE_POLICIES]
        _print_change(rest.ljust(width), change, causes, out)


def _print_change(name: str, change: Change, causes: list[str], out: Console) -> None:
    before, after = _short(change.before, change.path), _short(change.after, change.path)
    why = (f"  ← {', '.join(causes)}" if causes else "", "dim")
    if change.before is ABSENT:
        out.say("      ", (f"+ {name}", "green"), f"  {after}", why)
    elif change.after is ABSENT:
        out.say("      ", (f"- {name}", "red"), f"  {before}", why)
    elif len(before) + len(after) <= _WIDTH:
        out.say("      ", (f"~ {name}", "yellow"), f"  {before} → {after}", why)
    else:
        out.say("      ", (f"~ {name}", "yellow"), f"  {before}")
        out.say(" " * (len(name) + 8), f"→ {after}", why)


def _is_obvious(change: Change) -> bool:
    """Say whether a change goes without saying: identity and owner of built objects, one pod to a job."""
    path = change.path
    if path[1:2] in _IDENTITY or (path[1:2] == ("metadata",) and path[2:3] in _OF_METADATA):
        return True
    return path[-1] == "completions" or (path[-1] == "parallelism" and change.after == 1)


def _place(path: Path) -> tuple[str, str]:
    """Split a path into the part of the objects that it is in, and the rest."""
    if len(path) == 1:
        return "objects", str(path[0])
    where, rest = str(path[0]), path[1:]
    if rest[:2] == _JOB and len(rest) > 2 and isinstance(rest[2], Item):
        where, rest = f"job {rest[2].value}", rest[3:]
        if rest[:3] == _POD:
            where, rest = f"{where}, pods", rest[3:]
            if len(rest) > 2 and rest[1] in ("containers", "initContainers") and isinstance(rest[2], Item):
                where, rest = f"{where.removesuffix(', pods')}, container {rest[2].value}", rest[3:]
            elif len(rest) > 1 and rest[0] == "spec":
                rest = rest[1:]
        elif rest[:2] == ("template", "spec"):
            rest = rest[2:]
    return where, render_path(rest) or "(all of it)"


def _short(value: Any, path: Path) -> str:
    """Return a value in one line; of a list's item what it has beside the key that its path shows."""
    if isinstance(value, dict):
        if "kind" in value and "metadata" in value:
            return f"{value['metadata'].get('name')}"
        key = path[-1].key if path and isinstance(path[-1], Item) else ""
        beside = {name: held for name, held in value.items() if name != key} or value
        if len(beside) == 1:
            ((name, held),) = beside.items()
            return _short(held, ()) if name == "value" else _cut(f"{name} {_flow(held)}")
        return _cut(_flow(beside))
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return _cut(" ".join(shlex.join(value).split()))
    return _cut(_flow(value))


def _flow(value: Any) -> str:
    if value is ABSENT:
        return ""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {_flow(held)}' for name, held in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


def _summary(name: str, data: dict[str, Any]) -> str:
    kind = name.partition(" ")[0]
    text = f"{kind} {data.get('metadata', {}).get('name')}"
    if kind != JobSet.gvk.kind:
        return text
    jobs = data.get("spec", {}).get("replicatedJobs") or ()
    pods = [f"{job['name']} {job['template']['spec'].get('parallelism', 1)}" for job in jobs]
    return f"{text} (pods: {', '.join(pods)})"
