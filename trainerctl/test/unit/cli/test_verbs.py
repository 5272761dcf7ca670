# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Help and errors of every command, run as a program in a pipe and on a terminal of 80 columns.

The commands are taken from the parser, so new commands are tested as soon as they are registered.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from controller_runtime.envtest import free_ports
from rich.cells import cell_len

from trainerctl.cli import parser
from trainerctl.cli.help import leaves

pytestmark = pytest.mark.real_time

COLUMNS = 80
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
LEAVES = leaves(parser.parser())
LIVE = [name for name, of in LEAVES.items() if re.search(r"(?m)^  --context", of.format_help())]
"""Commands that read a cluster of a kubeconfig."""
OFFLINE = {"render", "explain", "validate", "mcp"}
"""Commands that read a cluster only if a flag names one, or when an assistant asks."""


@dataclass
class Ran:
    code: int
    out: str
    err: str


def environment(home: Path) -> dict[str, str]:
    names = {"PATH": "/usr/bin:/bin", "HOME": str(home), "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    return {
        **names,
        "XDG_STATE_HOME": str(home),
        "XDG_CACHE_HOME": str(home),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }


def piped(home: Path, *words: str, stdin: str = "") -> Ran:
    done = subprocess.run(
        [sys.executable, "-m", "trainerctl", *words],
        env=environment(home), input=stdin, capture_output=True, text=True, timeout=240, check=False, cwd=home,
    )  # fmt: skip
    return Ran(done.returncode, done.stdout, done.stderr)


def on_a_terminal(home: Path, *words: str) -> Ran:
    """Run with a terminal as standard output and standard error."""
    mine, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "trainerctl", *words],
        env=environment(home), stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, cwd=home,
    )  # fmt: skip
    os.close(theirs)
    shown = b"".join(_read(mine))
    os.close(mine)
    return Ran(process.wait(timeout=240), shown.decode().replace("\r\n", "\n"), "")


def _read(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # the last process has closed the terminal
            return
        if not data:
            return
        yield data


def least(of: argparse.ArgumentParser) -> list[str]:
    """Return the smallest set of arguments that the parser accepts."""
    words: list[str] = []
    for action in of._actions:
        if not (action.required and action.nargs != "*"):
            continue
        value = str(next(iter(action.choices))) if action.choices else "some"
        words += [*action.option_strings[-1:], value]
    return words


def assert_plain(ran: Ran) -> None:
    assert "\x1b" not in ran.out + ran.err
    assert "\r" not in ran.out + ran.err
    assert "Traceback" not in ran.err


DRAWN = {"get", "progress"}
"""Commands that are looked at in a pipe and on a terminal: a table, and a picture that is drawn again and again."""


@pytest.mark.parametrize("name", sorted(DRAWN))
def test_help_has_no_escape_codes_in_a_pipe(name: str, tmp_path: Path) -> None:
    plain = piped(tmp_path, name, "--help")
    assert_plain(plain)
    assert (plain.code, plain.err) == (0, "")
    assert plain.out.split() == LEAVES[name].format_help().split()


@pytest.mark.parametrize("name", LEAVES)
def test_help_fits_a_terminal(name: str, tmp_path: Path) -> None:
    shown = on_a_terminal(tmp_path, *name.split(), "--help")
    assert shown.code == 0
    text, _, examples = ESCAPE.sub("", shown.out).partition("\nexamples:")
    assert [line for line in text.splitlines() if cell_len(line) > COLUMNS] == []
    assert examples
    assert ESCAPE.sub("", shown.out).split() == LEAVES[name].format_help().split()


@pytest.fixture
def nowhere(tmp_path: Path) -> str:
    """Return the kubeconfig of a server that does not listen."""
    server = f"https://127.0.0.1:{free_ports(1)[0]}"
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}], "users": [{"name": "u", "user": {"token": "t"}}],
    }  # fmt: skip
    path = tmp_path / "nowhere"
    path.write_text(repr(config))
    return str(path)


RUNTIME = '{"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainingRuntime", "metadata": {"name": "r", "namespace": "n"}}'


@pytest.mark.parametrize("name", sorted(set(LIVE) - OFFLINE))
def test_a_server_that_cannot_be_reached_is_one_line(name: str, nowhere: str, tmp_path: Path) -> None:
    arguments = least(LEAVES[name])
    if "-f" in arguments or "--filename" in arguments:
        (tmp_path / "some").write_text(RUNTIME)
    words = [*name.split(), *arguments, "--kubeconfig", nowhere]
    plain = piped(tmp_path, *words)
    assert_plain(plain)
    assert (plain.code, plain.out) == (1, "")
    (line,) = plain.err.splitlines()
    assert re.match(r"trainerctl: .*connection refused", line, re.IGNORECASE)
    if name in DRAWN:
        shown = on_a_terminal(tmp_path, *words)
        assert shown.code == 1
        assert "connection refused" in ESCAPE.sub("", shown.out).lower()


WITHOUT_CLUSTER = {"cluster up", "cluster build", "cluster list"}
"""Commands that do not need an existing cluster."""


@pytest.mark.parametrize(
    "name", [name for name in LEAVES if name.startswith("cluster ") and name not in WITHOUT_CLUSTER]
)
def test_an_unknown_cluster_is_named(name: str, tmp_path: Path) -> None:
    plain = piped(tmp_path, *name.split(), "--name", "missing")
    assert_plain(plain)
    assert plain.code in (0, 1)
    assert "missing" in plain.out + plain.err
