# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Help, examples and completion follow the parser."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import trainerctl
from trainerctl.cli import completion, parser
from trainerctl.cli.examples import EXAMPLES
from trainerctl.cli.help import subcommands

LEAVES = [each for each in completion.commands() if each.path and not list(subcommands(each.parser))]
IDS = [" ".join(each.path) for each in LEAVES]


@pytest.mark.parametrize("command", LEAVES, ids=IDS)
def test_help_is_the_same_by_command_and_by_flag_and_has_examples(
    command: completion.Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trainerctl.main(["help", *command.path]) == 0
    by_command = capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        trainerctl.main([*command.path, "--help"])

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


@pytest.fixture
def script(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Path:
    """Return the bash script beside a trainerctl that knows two TrainJobs of team-a."""
    assert trainerctl.main(["completion", "bash"]) == 0
    written = tmp_path / "completion.bash"
    written.write_text(capsys.readouterr().out)
    program = tmp_path / "trainerctl"
    program.write_text(
        '#!/bin/sh\n[ "$*" = "get -o name -n team-a" ] && printf "trainjob.trainer.kubeflow.org/%s\\n" llama lima mistral\n'
    )
    program.chmod(0o755)
    return written


def completed(script: Path, line: str) -> set[str]:
    words = line.split(" ")
    given = " ".join(map(shlex.quote, words))
    code = f'source {script}; COMP_WORDS=({given}); COMP_CWORD={len(words) - 1}; _trainerctl; printf "%s\\n" "${{COMPREPLY[@]}}"'
    bash = shutil.which("bash")
    assert bash is not None
    done = subprocess.run(
        [bash, "--norc", "-ec", code], env={"PATH": f"{script.parent}:/usr/bin:/bin"}, capture_output=True, text=True, check=True
    )  # fmt: skip
    assert done.stderr == ""
    return set(done.stdout.split())


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("trainerctl des", {"describe"}),
        ("trainerctl cluster ", {"up", "down", "stop", "start", "logs", "status", "list", "build"}),
        ("trainerctl get -o ", {"table", "json", "yaml", "name"}),
        ("trainerctl wait llama --for f", {"failed", "finished"}),
        ("trainerctl why -n team-a ", {"llama", "lima", "mistral"}),
        ("trainerctl suspend -n team-a llama l", {"llama", "lima"}),
        ("trainerctl logs --fol", {"--follow"}),
        ("trainerctl completion f", {"fish"}),
        ("trainerctl why -n ", set()),
    ],
)
def test_bash_completes_commands_flags_values_and_names(script: Path, line: str, expected: set[str]) -> None:
    assert completed(script, line) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_names_every_command_and_flag(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trainerctl.main(["completion", shell]) == 0

    text = capsys.readouterr().out
    for command in completion.commands():
        assert all(word in text for word in command.path)
        for flag in command.flags:
            assert all(
                (option if shell != "fish" else option.lstrip("-")) in text for option in flag.option_strings
            )


@pytest.mark.real_time
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_accepts_its_script(shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    assert trainerctl.main(["completion", shell]) == 0
    written = tmp_path / "script"
    written.write_text(capsys.readouterr().out)

    subprocess.run([program, "-n", str(written)], check=True)


@pytest.mark.real_time
def test_help_loads_nothing_that_is_slow() -> None:
    code = (
        "import sys, trainerctl; trainerctl.main(['help', 'why']); "
        "print(sorted({'rich', 'pydantic', 'anyio', 'yaml'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stderr == "[]\n"
    assert "examples:" in done.stdout
