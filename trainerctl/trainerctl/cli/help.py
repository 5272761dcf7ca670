# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl help``: prints the help of a command. This module also has the examples at the end of each help text."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from trainerctl.cli import parser, streams

_LINES: Final = (
    ("Start a local cluster with 4 nodes of 8 GPUs", "cluster up"),
    (
        "Start a cluster of another name, with gang scheduling",
        "cluster up --name gang --coscheduling --nodes 8",
    ),
    ("Remove the local cluster and all its objects", "cluster down"),
    ("Stop the local cluster for the night", "cluster stop"),
    ("Start the stopped cluster again, with its objects", "cluster start"),
    ("Follow the log of the manager", "cluster logs trainer-controller-manager --follow"),
    ("Print the last lines of all components", "cluster logs --tail 5"),
    ("Show the state of each component", "cluster status"),
    ("List the local clusters", "cluster list"),
    ("Build the programs before the first start", "cluster build"),
    ("Run one TrainJob of 8 nodes on a temporary cluster", "demo --nodes 8"),
    ("Run the manager against the local cluster", "run"),
    ("Run the manager against a kubeconfig's cluster", "run --kubeconfig ~/.kube/config --zap-log-level=1"),
    ("Print the JobSet that a TrainJob becomes", "render -f trainjob.yaml"),
    ("Read runtimes also from a cluster", "render -f trainjob.yaml --kubeconfig ~/.kube/config"),
    ("Rewrite manifests for v2.2 and v2.3", "convert -f manifests/ --to 2.3"),
    ("Rewrite a file for v2.1, as JSON", "convert -f trainjob.yaml --to 2.1 -o json"),
    ("Show which plugin set which field", "explain -f trainjob.yaml"),
    ("Check files before they are applied", "validate -f trainjob.yaml runtimes/"),
    ("Ask the API server by dry runs, which store nothing", "validate -f trainjob.yaml --server"),
    ("Show the groups of the pods in a file", "group -f pods.yaml"),
    ("Print the CRDs", "crds"),
    ("Apply the CRDs to the current cluster", "crds --apply"),
    ("List the TrainJobs of a namespace", "get -n team-a"),
    ("Show a TrainJob with its JobSet, Jobs and pods", "get llama"),
    ("Watch a TrainJob until it has ended", "get llama --watch"),
    ("Explain why a TrainJob does not run", "why llama -n team-a"),
    ("Print the cause as JSON, for scripts", "why llama -o json"),
    ("Show everything about a TrainJob on one page", "describe llama"),
    ("Print the warnings of a TrainJob and its objects", "events llama --types Warning"),
    ("Print the log of rank 0", "logs llama"),
    ("Follow the logs of all nodes", "logs llama --all --follow"),
    ("Print the last lines of an initializer's log", "logs llama --step dataset-initializer --tail 20"),
    ("Wait until a TrainJob is complete", "wait llama"),
    ("Wait at most 10 minutes until a TrainJob runs", "wait llama --for running --timeout 600"),
    ("Show where rank 1 hangs", "exec llama --rank 1 -- py-spy dump --subprocesses --pid 1"),
    ("Open a shell in the container that trains", "exec llama -it -- bash"),
    ("Print each report of the progress until the TrainJob has ended", "progress llama"),
    ("Draw the metrics while it trains", "progress llama --plot llama.svg"),
    ("Suspend two TrainJobs", "suspend llama mistral"),
    ("Resume a TrainJob", "resume llama"),
    ("Delete a TrainJob with all its objects", "delete llama"),
    ("Show which TrainJobs of the cluster would be rewritten", "migrate -A --dry-run"),
    ("Rewrite the TrainJobs of one namespace", "migrate -n team-a"),
    ("Show the effect of a changed runtime before it is applied", "diff -f runtime.yaml"),
    ("Let an assistant ask about the TrainJobs of a namespace", "mcp -n team-a"),
    (
        "Turn on completion in this shell",
        "completion bash > ~/.trainerctl.bash && source ~/.trainerctl.bash",
    ),
    ("Install completion for fish", "completion fish > ~/.config/fish/completions/trainerctl.fish"),
    ("Show the help of a command", "help cluster up"),
)

EXAMPLES: Final[dict[str, list[tuple[str, str]]]] = {}
"""The examples of each command: pairs of description and command line."""
for _about, _line in _LINES:
    _words = _line.split()
    EXAMPLES.setdefault(" ".join(_words[: 2 if _words[0] == "cluster" else 1]), []).append((_about, _line))


def examples(prog: str) -> str:
    """Return the examples for a command's help, or an empty text if the command has no examples."""
    program, _, command = prog.partition(" ")
    lines = [f"  # {about}\n  {program} {line}\n" for about, line in EXAMPLES.get(command, ())]
    return "\nexamples:\n" + "\n".join(lines) if lines else ""


_UNKNOWN: Final = 2


def show(words: Sequence[str]) -> int:
    """Print the help of a command; return 2 if the command does not exist.

    The modules of the commands are not loaded.
    """
    found: argparse.ArgumentParser = parser.parser()
    for word in words:
        commands = dict(subcommands(found))
        if word not in commands:
            known = f"; the commands are {', '.join(commands)}" if commands else ""
            streams.say_error(f"{found.prog} has no command {word}{known}")
            return _UNKNOWN
        found = commands[word]
    sys.stdout.write(found.format_help())
    return 0


def subcommands(of: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield the name and the parser of each subcommand."""
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def leaves(of: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the commands below a parser that have no subcommands. The keys are full names such as ``cluster up``."""
    found = list(subcommands(of))
    if not found:
        return {of.prog.partition(" ")[2]: of}
    return {name: leaf for _, below in found for name, leaf in leaves(below).items()}
