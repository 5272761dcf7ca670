# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Help, examples and errors of every command.

The commands are taken from the parser, so new commands are tested as soon as they are registered.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
from pathlib import Path

import pytest
from controller_runtime.envtest import free_ports, kubeconfig
from rich.cells import cell_len

import trainerctl
from trainerctl.cli import parser
from trainerctl.cli.help import EXAMPLES, leaves

COLUMNS = 80
LEAVES = leaves(parser.parser())
LIVE = [name for name, of in LEAVES.items() if re.search(r"(?m)^  --context", of.format_help())]
"""Commands that read a cluster of a kubeconfig."""
OFFLINE = {"render", "explain", "validate", "mcp"}
"""Commands that read a cluster only if a flag names one, or when an assistant asks."""
WITHOUT_CLUSTER = {"cluster up", "cluster build", "cluster list"}
"""Commands that do not need an existing cluster."""
RUNTIME = '{"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainingRuntime", "metadata": {"name": "r", "namespace": "n"}}'


@pytest.mark.parametrize("command", LEAVES)
def test_help_is_the_same_by_command_and_by_flag_has_examples_and_fits_a_terminal(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    assert trainerctl.main(["help", *command.split()]) == 0
    by_command = capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        trainerctl.main([*command.split(), "--help"])

    assert ended.value.code == 0
    assert by_command == capsys.readouterr().out
    text, _, examples = by_command.partition("\nexamples:\n  # ")
    assert examples
    assert [line for line in text.splitlines() if cell_len(line) > COLUMNS] == []


@pytest.mark.parametrize("command", EXAMPLES)
def test_every_example_is_a_valid_command_line(command: str) -> None:
    for _, line in EXAMPLES[command]:
        words = shlex.split(line.partition(" > ")[0])
        assert words[: len(command.split())] == command.split()
        parser.parse(words)


def test_an_unknown_command_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert trainerctl.main(["help", "cluster", "upp"]) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("trainerctl: trainerctl cluster has no command upp; the commands are up, down,")


def least(of: argparse.ArgumentParser) -> list[str]:
    """Return the smallest set of arguments that the parser accepts."""
    words: list[str] = []
    for action in of._actions:
        if not (action.required and action.nargs != "*"):
            continue
        value = str(next(iter(action.choices))) if action.choices else "some"
        words += [*action.option_strings[-1:], value]
    return words


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working folder and home of a user without clusters."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", sorted(set(LIVE) - OFFLINE))
def test_a_server_that_cannot_be_reached_is_one_line(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = kubeconfig(f"https://127.0.0.1:{free_ports(1)[0]}", user="u", token="t")
    (folder / "kubeconfig").write_text(json.dumps(config))
    (folder / "some").write_text(RUNTIME)

    assert trainerctl.main([*name.split(), *least(LEAVES[name]), "--kubeconfig", "kubeconfig"]) == 1

    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert re.match(r"trainerctl: .*connection refused", line, re.IGNORECASE)
    assert out == ""
    assert "\x1b" not in err


@pytest.mark.parametrize(
    "name", [name for name in LEAVES if name.startswith("cluster ") and name not in WITHOUT_CLUSTER]
)
@pytest.mark.usefixtures("folder")
def test_an_unknown_cluster_is_named(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert trainerctl.main([*name.split(), "--name", "missing"]) in (0, 1)

    said = "".join(capsys.readouterr())
    assert "missing" in said
    assert "\x1b" not in said
