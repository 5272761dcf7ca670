# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl explain``: shows stage by stage how the manager makes objects from a TrainJob, and the causes of each
change.
"""

from __future__ import annotations

import argparse
import json
import shlex
from typing import Final

from controller_runtime.machinery import JSON
from pkg.apis.jobset.v1alpha2 import JobSet

from trainerctl.cli import streams
from trainerctl.cli.render import load
from trainerctl.cli.terminal import Console
from trainerctl.offline.trace.diff import ABSENT, Change, Item, Path, render
from trainerctl.offline.trace.pipeline import Step
from trainerctl.offline.trace.trainjob import TrainJobTrace, reviewed

_STAGES: Final = {
    "EnforceMLPolicy": "applies the runtime's mlPolicy",
    "EnforcePodGroupPolicy": "applies the runtime's podGroupPolicy",
    "PodNetwork": "sets the pods' host names",
    "ComponentBuilder": "builds the objects",
}
_WHOLE_POLICIES: Final = {
    f"runtime's {name}"
    for name in (
        "mlPolicy",
        "mlPolicy.torch",
        "mlPolicy.mpi",
        "mlPolicy.jax",
        "mlPolicy.xgboost",
        "mlPolicy.flux",
        "podGroupPolicy",
        "podGroupPolicy.coscheduling",
    )
}
"""These causes are not shown, because the name of the plugin already implies them."""
_JOB: Final = ("spec", "replicatedJobs")
_POD: Final = ("template", "spec", "template")
_IDENTITY: Final = (("apiVersion",), ("kind",))
_OF_METADATA: Final = (("name",), ("namespace",), ("ownerReferences",))
LINE_WIDTH: Final = 70
"""Maximum number of characters for a value in one line, or for the old and the new value together."""


async def explain_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Print the traces of the TrainJobs; return 1 if a TrainJob or a runtime is refused."""
    given = await load(arguments)
    found = [await reviewed(given, subject) for subject in given.subjects]
    for note in given.client.notes:
        streams.say_note(note)
    if arguments.output == "text":
        for each in found:
            print_text(each, out)
    else:
        out.write(arguments.output, {"explanations": [each.to_dict() for each in found]})
    refusals = [each.refusal for each in found if each.refusal is not None]
    for refusal in refusals:
        streams.say_error(refusal)
    return 1 if refusals or given.refused_runtimes else 0


def print_text(found: TrainJobTrace, out: Console) -> None:
    """Print a trace in human-readable form."""
    subject = found.subject
    out.say((subject.document.name, "bold"), " on ", (subject.runtime, "bold"))
    stage = None
    shown: set[str] = set()
    for step in found.pipeline.steps:
        changes = [change for change in step.changes if not is_obvious(change)]
        news = step.aside is not None and step.author not in shown
        if not (changes or step.notes or news):
            continue
        if step.stage != stage:
            stage = step.stage
            about = _STAGES.get(stage)
            out.say()
            out.say((stage, "bold cyan"), (f"  {about}" if about else "", "dim"))
        if step.aside is not None:
            shown.add(step.author)
        _print_step(found, step, changes, out)
    out.say()
    if found.refusal is None:
        made = [summary(name, data) for name, data in found.pipeline.state.items()]
        out.say(("Result", "bold cyan"), f"  {', '.join(made) or 'nothing'}")
    else:
        out.say(("Refused", "bold red"), f"  {found.refusal}")
    for each in found.warnings:
        out.say(("Warning", "bold yellow"), f"  {each}")
    out.say()


def _print_step(found: TrainJobTrace, step: Step, changes: list[Change], out: Console) -> None:
    if step.aside is not None:
        out.say(f"  {step.author}", (f"  stood aside: {step.aside}", "dim"))
    elif step.author:
        out.say((f"  {step.author}", "bold"))
    for note in step.notes:
        out.say(f"    {note}")
    group = None
    shown = [(*place(change.path), change) for change in changes]
    width = min(max((len(rest) for _, rest, _ in shown), default=0), 40)
    for where, rest, change in shown:
        if where != group:
            group = where
            out.say((f"    {where}", "italic"))
        causes = [cause for cause in found.causes.of(change) if cause not in _WHOLE_POLICIES]
        _print_change(rest.ljust(width), change, causes, out)


def _print_change(name: str, change: Change, causes: list[str], out: Console) -> None:
    before, after = short(change.before, change.path), short(change.after, change.path)
    why = (f"  ← {', '.join(causes)}" if causes else "", "dim")
    if change.before is ABSENT:
        out.say("      ", (f"+ {name}", "green"), f"  {after}", why)
    elif change.after is ABSENT:
        out.say("      ", (f"- {name}", "red"), f"  {before}", why)
    elif len(before) + len(after) <= LINE_WIDTH:
        out.say("      ", (f"~ {name}", "yellow"), f"  {before} → {after}", why)
    else:
        out.say("      ", (f"~ {name}", "yellow"), f"  {before}")
        out.say(" " * (len(name) + 8), f"→ {after}", why)


def is_obvious(change: Change) -> bool:
    """Return True for a change that needs no explanation.

    Such changes set the identity or owner of an object, its completions, or a parallelism of 1.
    """
    path = change.path
    if path[1:2] in _IDENTITY or (path[1:2] == ("metadata",) and path[2:3] in _OF_METADATA):
        return True
    return path[-1] == "completions" or (path[-1] == "parallelism" and change.after == 1)


def place(path: Path) -> tuple[str, str]:
    """Split a path: return the job, pods or container in which it starts, and the path from there."""
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
    return where, render(rest) or "(all of it)"


def short(value: JSON, path: Path) -> str:
    """Return a value in one line. The key of a list item is left out, because the path shows the key."""
    if isinstance(value, dict):
        if "kind" in value and "metadata" in value:
            return f"{value['metadata'].get('name')}"
        key = path[-1].key if path and isinstance(path[-1], Item) else ""
        beside = {name: held for name, held in value.items() if name != key} or value
        if len(beside) == 1:
            ((name, held),) = beside.items()
            return short(held, ()) if name == "value" else _cut(f"{name} {_flow(held)}")
        return _cut(_flow(beside))
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return _cut(" ".join(shlex.join(value).split()))
    return _cut(_flow(value))


def _flow(value: JSON) -> str:
    if value is ABSENT:
        return ""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {_flow(held)}' for name, held in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _cut(text: str) -> str:
    return text if len(text) <= LINE_WIDTH else f"{text[: LINE_WIDTH - 3]}..."


def summary(name: str, data: dict[str, JSON]) -> str:
    """Return the kind and name of an object. For a JobSet, add the number of pods of each job."""
    kind = name.partition(" ")[0]
    text = f"{kind} {data.get('metadata', {}).get('name')}"
    if kind != JobSet.gvk.kind:
        return text
    jobs = data.get("spec", {}).get("replicatedJobs") or ()
    pods = [f"{job['name']} {job['template']['spec'].get('parallelism', 1)}" for job in jobs]
    return f"{text} (pods: {', '.join(pods)})"
