# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Follows the commands in the advice of ``trainerctl``, as a person does whose job has failed."""

import re
import shlex
from collections.abc import Iterator
from functools import lru_cache

from trainerctl.cli import events, logs, parser

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


_ANY_COMMAND = re.compile(r"\b(?:trainerctl|kubectl)(?: (?:[^\s.,;)]|[.,;](?=\S))+)+")
"""A command in a text: it ends before the punctuation that ends its part of the sentence."""
_KUBECTL = re.compile(
    r"kubectl (?:apply --server-side -k config/[a-z-]+|delete node \S+|delete pod \S+ -n \S+ --force|describe nodes"
    r"|describe pods -n \S+ -l \S+=\S+|logs \S+ -n \S+|uncordon \S+)"
)
"""The commands of kubectl that remedies may name."""


def mistakes(text: str) -> Iterator[str]:
    """Yield each command in a text that the tool or kubectl would refuse. N stands for any number."""
    yield from (command for command in _ANY_COMMAND.findall(text) if not is_accepted(command))


@lru_cache(maxsize=4096)
def is_accepted(command: str) -> bool:
    """Return True if the program of a command would accept its words."""
    program, *words = shlex.split(command)
    if program == "kubectl":
        return _KUBECTL.fullmatch(command) is not None
    try:
        parser.parse(["4" if word == "N" else word for word in words])
    except SystemExit:
        return False
    return True
