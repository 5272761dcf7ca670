# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Help and examples follow the parser."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

import trainerctl
from trainerctl.cli import parser
from trainerctl.cli.help import EXAMPLES, leaves


@pytest.mark.parametrize("command", leaves(parser.parser()))
def test_help_is_the_same_by_command_and_by_flag_and_has_examples(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trainerctl.main(["help", *command.split()]) == 0
    by_command = capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        trainerctl.main([*command.split(), "--help"])

    assert ended.value.code == 0
    assert by_command == capsys.readouterr().out
    assert "\nexamples:\n  # " in by_command


@pytest.mark.parametrize("command", EXAMPLES)
def test_every_example_is_a_valid_command_line(command: str) -> None:
    for _, line in EXAMPLES[command]:
        words = shlex.split(line.partition(" > ")[0])
        assert words[: len(command.split())] == command.split()
        parser.parse(words)


def test_an_unknown_command_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert trainerctl.main(["help", "cluster", "upp"]) == 2

    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(
        "trainerctl: trainerctl cluster has no command upp; the commands are up, down,"
    )


@pytest.mark.real_time
def test_help_loads_nothing_that_is_slow() -> None:
    code = (
        "import sys, trainerctl; trainerctl.main(['help', 'why']); "
        "print(sorted({'rich', 'pydantic', 'anyio', 'yaml'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stderr == "[]\n"
    assert "examples:" in done.stdout
