# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Manual pages follow the parser, and man(1) formats them without a warning."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess

import pytest

import trainerctl
from trainerctl.cli import completion, examples, parser
from trainerctl.cli.help import manual_page

COMMANDS = {" ".join(each.path): each.parser for each in completion.commands()}


@pytest.mark.parametrize("name", COMMANDS, ids=lambda name: name or "trainerctl")
def test_every_flag_command_and_example_is_on_the_page(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert trainerctl.main(["help", "--man", *name.split()]) == 0
    page = capsys.readouterr().out.replace("\\-", "-").replace("\\&", "").replace("\\e", "\\")
    assert page.startswith(f".TH {('trainerctl ' + name).strip().upper().replace(' ', '-')} 1 ")
    assert "\n.SH SYNOPSIS\n.nf\n" in page  # its lines are not joined
    for action in COMMANDS[name]._actions:
        for flag in action.option_strings:
            assert re.search(rf"(?m)^\\fB.*{flag}", page), flag
    for _, line in examples.EXAMPLES.get(name, ()):
        assert f"trainerctl {line}" in page


@pytest.mark.real_time
@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
@pytest.mark.parametrize("name", COMMANDS, ids=lambda name: name or "trainerctl")
def test_the_page_is_formatted_without_a_warning(name: str) -> None:
    page = manual_page(COMMANDS[name])
    done = subprocess.run(
        ["groff", "-man", "-ww", "-Tutf8", "-P-cbou"], input=page, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert "EXIT STATUS" in done.stdout
    assert "SYNOPSIS" in done.stdout


def test_text_has_no_meaning_to_the_formatter() -> None:
    of = argparse.ArgumentParser(prog="trainerctl x", description=".so /etc/passwd\n'nf \\fB--flag")
    page = manual_page(of)
    assert "\n\\&.so /etc/passwd\n\\&'nf \\efB\\-\\-flag\n" in page
    assert not re.search(r"(?m)^\.so", page)


def test_an_unknown_command_has_no_page() -> None:
    assert trainerctl.main(["help", "--man", "nothing"]) == 2
    assert parser.parse(["help", "--man"]).words == []
