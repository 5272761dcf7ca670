# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl explain``: how a TrainJob becomes its objects, stage by stage, and the causes of each change."""

from __future__ import annotations

import argparse
from typing import Final

from trainerctl.cli import inputs, streams
from trainerctl.cli.terminal import Console
from trainerctl.offline.trace import wording
from trainerctl.offline.trace.diff import ABSENT, Change
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
"""Causes that are not shown: the name of the plugin implies them."""


async def explain_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Print the traces of the TrainJobs; return 1 if one is refused."""
    given = await inputs.load(arguments)
    found = [await reviewed(given, subject) for subject in given.subjects]
    if arguments.output == "text":
        for each in found:
            print_text(each, out)
    else:
        out.write(arguments.output, {"explanations": [each.to_dict() for each in found]})
    refusals = [each.refusal for each in found if each.refusal is not None]
    for refusal in refusals:
        streams.say_error(refusal)
    return 1 if refusals else 0


def print_text(found: TrainJobTrace, out: Console) -> None:
    """Print a trace for people."""
    subject = found.subject
    out.say((subject.document.name, "bold"), " on ", (subject.runtime, "bold"))
    stage = None
    shown: set[str] = set()
    for step in found.pipeline.steps:
        changes = [change for change in step.changes if not wording.is_obvious(change)]
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
        made = [wording.summary(name, data) for name, data in found.pipeline.state.items()]
        out.say(("Result", "bold cyan"), f"  {', '.join(made) or 'nothing'}")
    else:
        out.say(("Refused", "bold red"), f"  {found.refusal}")
    out.say()


def _print_step(found: TrainJobTrace, step: Step, changes: list[Change], out: Console) -> None:
    if step.aside is not None:
        out.say(f"  {step.author}", (f"  stood aside: {step.aside}", "dim"))
    elif step.author:
        out.say((f"  {step.author}", "bold"))
    for note in step.notes:
        out.say(f"    {note}")
    group = None
    shown = [(*wording.place(change.path), change) for change in changes]
    width = min(max((len(rest) for _, rest, _ in shown), default=0), 40)
    for where, rest, change in shown:
        if where != group:
            group = where
            out.say((f"    {where}", "italic"))
        causes = [cause for cause in found.causes.of(change) if cause not in _WHOLE_POLICIES]
        _print_change(rest.ljust(width), change, causes, out)


def _print_change(name: str, change: Change, causes: list[str], out: Console) -> None:
    before, after = wording.short(change.before, change.path), wording.short(change.after, change.path)
    why = (f"  ← {', '.join(causes)}" if causes else "", "dim")
    if change.before is ABSENT:
        out.say("      ", (f"+ {name}", "green"), f"  {after}", why)
    elif change.after is ABSENT:
        out.say("      ", (f"- {name}", "red"), f"  {before}", why)
    elif len(before) + len(after) <= wording.LINE_WIDTH:
        out.say("      ", (f"~ {name}", "yellow"), f"  {before} → {after}", why)
    else:
        out.say("      ", (f"~ {name}", "yellow"), f"  {before}")
        out.say(" " * (len(name) + 8), f"→ {after}", why)
