# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Follows the commands in the advice of ``trainerctl``, as a person does whose job has failed."""

import re

from trainerctl.cli import events, logs

from pkg.why import Snapshot, diagnose
from pkg.why.phase import training_step

_COMMAND = re.compile(r"trainerctl (logs|why|events|describe)\b(?: \S+ -n \S+ --step (\S+))?")


def said(snapshot: Snapshot, verb: str, step: str) -> str:
    """Return what a command of the tool tells a person about a TrainJob, without the logs themselves."""
    match verb:
        case "logs":
            found = logs.pods_of(snapshot, step or training_step(snapshot))
            return "" if found else logs.no_pod(snapshot, step or training_step(snapshot))
        case "events":
            found = events.of_all(snapshot)
            return "\n".join(each.text("message") for each in found) or events.no_events(snapshot)
        case "why" | "describe":
            return "\n".join(each.advice for each in diagnose(snapshot).findings)
    return ""


def follow(snapshot: Snapshot, text: str, path: tuple[str, ...]) -> None:
    """Follow the commands in a text until they end at something that a person can do."""
    for verb, step in _COMMAND.findall(text):
        assert verb not in path, f"a circle: {' -> '.join((*path, verb))}: {text}"
        follow(snapshot, said(snapshot, verb, step), (*path, verb))
