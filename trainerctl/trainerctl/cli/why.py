# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl why``: explains why a TrainJob does not run. It only reads live objects."""

from __future__ import annotations

import argparse
from typing import Final

from pkg.why import Finding, State, Verdict, diagnose

from trainerctl.cli import live
from trainerctl.cli.terminal import Console

_STYLES: Final = {State.WRONG: "bold red", State.WAITING: "bold yellow"}


async def why_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Print the verdict.

    Return 0 if the TrainJob runs, starts or is complete, 1 if something is wrong, and 3 if it waits.

    Raises:
        StatusError: the TrainJob cannot be read.
    """
    async with live.connect(arguments) as cluster:
        verdict = diagnose(await cluster.snapshot(arguments.name))
    if arguments.output == "json":
        out.write_json(verdict.to_dict())
    else:
        print_text(verdict, out)
    return verdict.exit_code


def print_text(verdict: Verdict, out: Console) -> None:
    """Print a verdict in human-readable form: the sentence, the evidence and the advice, then the other findings.

    If the TrainJob waits or something is wrong, also list the kinds that could not be read, because their objects may
    show the cause.
    """
    out.say((verdict.sentence, _STYLES.get(verdict.state, "bold green")))
    for line in verdict.known:
        out.say(f"  {line}")
    for number, finding in enumerate(verdict.findings):
        if number == 0 and verdict.exit_code:
            _print(finding, out)
            continue
        if number == min(1, verdict.exit_code):
            out.say()
            out.say("Also found:")
        out.say(f"  {finding.about}: {finding.summary.rstrip('.')}.", (f"  [{finding.cause}]", "dim"))
    if verdict.unread and verdict.exit_code:
        out.say()
        out.say("Not read:")
        for line in verdict.unread:
            out.say(f"  {line}")


def _print(finding: Finding, out: Console) -> None:
    out.say()
    out.say("Evidence:", (f"  [{finding.cause}] {finding.about}", "dim"))
    for line in finding.evidence:
        out.say(f"  {line}")
    out.say()
    out.say("To do:")
    out.say(f"  {finding.advice}")
