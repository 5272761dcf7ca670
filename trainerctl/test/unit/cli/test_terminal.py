# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Text from files and servers on a terminal: it is printed, and control characters in it have no effect."""

import io
import json
from collections.abc import Callable

import pytest
import yaml
from testkit.builders import train_job_document

from trainerctl.cli import streams
from trainerctl.cli.terminal import Console, columns, json_text, yaml_text

Tool = Callable[..., tuple[int, str, str]]
HOSTILE = "\x1b[31mred\x1b]0;title\x07 \x9b1m \u202eabc [bold]b[/] :smile: \r\x7f"


def printed(**options: object) -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, **options), file


def test_escape_sequences_are_shown_and_markup_has_no_meaning() -> None:
    console, file = printed(width=200, force_terminal=True)
    console.say(HOSTILE)
    console.table(("NAME",), [(HOSTILE,)])
    console.print(HOSTILE)
    text = file.getvalue()
    for sequence in ("\x1b[31m", "\x1b]", "\x07", "\x9b", "\u202e", "\r", "\x7f", "😄"):
        assert sequence not in text
    assert text.count("[bold]b[/] :smile:") == 3
    assert "\\x1b[31mred" in text


@pytest.mark.parametrize("value", [HOSTILE, "a\x85b", "a\u2028b", "two\nlines \x9b\n"])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_data_keeps_its_value_without_a_control_character(value: str, ascii_only: bool) -> None:
    for dump, load in ((yaml_text, yaml.safe_load), (json_text, json.loads)):
        text = dump({"key": value}, ascii_only=ascii_only)
        assert load(text) == {"key": value}
        assert all(char.isprintable() or char == "\n" for char in text)
        assert text.isascii() or not ascii_only


def test_nothing_is_cut_unless_it_is_a_terminal() -> None:
    rows = [("a", "c" * 300), ("long name", "d")]
    pipe, piped = printed()
    pipe.table(("JOB", "COMMAND"), rows)
    assert piped.getvalue() == f"JOB        COMMAND\na          {'c' * 300}\nlong name  d\n"
    terminal, shown = printed(width=40, force_terminal=True, color_system=None)
    terminal.table(("JOB", "COMMAND"), rows)
    assert max(map(len, shown.getvalue().splitlines())) == 40
    assert "ccc…" in shown.getvalue()


@pytest.mark.parametrize(
    ("head", "row", "room", "shown"),
    [
        (
            ("NAME", "STATE", "AGE", "DETAIL"),
            ("      Pod/a-train-job-with-a-rather-long-name-node-0-1-fpwbx", "Running", "3s", "node-1"),
            50,
            ["NAME                          STATE    AGE  DETAIL", "      Pod/a-tr…ode-0-1-fpwbx  Running  3s   node-1"],
        ),
        (
            ("AGE", "REASON", "OBJECT", "MESSAGE"),
            ("24s (x2)", "RestartJobSetFailurePolicyAction", "Pod/a-training-node-0-1-fpwbx", "0/2 nodes are available"),
            60,
            ["AGE       REASON        OBJECT                  MESSAGE", "24s (x2)  Restar…ction  Pod/a-train…-0-1-fpwbx  0/2 nodes a…"],
        ),
    ],
    ids=["one is long", "all are long"],
)  # fmt: skip
def test_every_column_stays_readable_in_a_narrow_terminal(
    head: tuple[str, ...], row: tuple[str, ...], room: int, shown: list[str]
) -> None:
    assert [text.plain for text in columns(head, [row], room=room)] == shown
    assert max(map(len, shown)) <= room


def test_a_shortened_text_at_the_edge_has_one_ellipsis() -> None:
    for room in range(8, 40):
        lines = [
            text.plain
            for text in columns(("NAME", "RUNTIME", "P"), [("a", "torch-distributed-long", "")], room=room)
        ]
        assert not any("……" in line for line in lines)
        assert max(map(len, lines)) <= room


def test_columns_line_up_numbers_to_the_right() -> None:
    lines = [
        text.plain
        for text in columns(("A", "PODS", "B"), [("x", "7", "y"), ("名", "100", "")], right=("PODS",))
    ]
    assert lines == ["A   PODS  B", "x      7  y", "名   100"]


def test_a_line_is_one_line() -> None:
    console, file = printed()
    console.say("a\nTo do:", ("b\r\u2028c", "bold"), "\td")
    console.table(("NAME",), [("x\ny\u200b",)])
    assert file.getvalue() == "a\\nTo do:b\\r\\u2028c\\td\nNAME\nx\\ny\\u200b\n"


def test_the_lines_of_an_error_cannot_be_mistaken_for_others(capsys: pytest.CaptureFixture[str]) -> None:
    streams.say_error("a\ntrainerctl: all is well\r\x85b\u200b")
    assert capsys.readouterr().err == "trainerctl: a\n  trainerctl: all is well\\r\\x85b\\u200b\n"


def test_a_comment_in_rendered_yaml_cannot_be_left(tool: Tool) -> None:
    _, out, _ = tool("render", train_job_document("team\nkind: Secret", "torch-distributed"))
    assert not [line for line in out.splitlines() if line.startswith("kind: Secret")]


@pytest.mark.parametrize("command", ["render", "explain", "validate", "group"])
def test_no_command_obeys_a_file(command: str, tool: Tool) -> None:
    text = "\x1b[31m[bold]b[/]"
    job = train_job_document(runtime=text, name=text, trainer={"command": [text]})
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": text}, "spec": {"schedulerName": text}}
    _, *written = tool(command, job, pod)
    said = "".join(written)
    assert "\x1b" not in said
    assert "\\x1b[31m[bold]b[/]" in said
