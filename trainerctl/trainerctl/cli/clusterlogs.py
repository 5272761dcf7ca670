# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl cluster logs``: the logs of a local cluster's components."""

from __future__ import annotations

import argparse
from collections import deque
from pathlib import Path
from typing import Final

import anyio

from trainerctl.cli import streams
from trainerctl.cli.terminal import Console
from trainerctl.localcluster.names import state_directory

_POLL: Final = 0.2
_SUFFIX: Final = ".log"


async def logs_command(parsed: argparse.Namespace, out: Console, err: Console) -> int:
    """Print the logs; return 1 if the cluster has none, or none of a component."""
    folder = state_directory(parsed.name) / "logs"
    found = {path.name.removesuffix(_SUFFIX): path for path in sorted(folder.glob(f"*{_SUFFIX}"))}
    if not found:
        streams.say_error(f"cluster {parsed.name} has no logs")
        return 1
    if unknown := [name for name in parsed.components if name not in found]:
        streams.say_error(f"there are logs of {', '.join(found)}, and none of {', '.join(unknown)}")
        return 1
    names = parsed.components or list(found)
    logs = [_Log(found[name], f"{name}: " if len(names) > 1 else "", out) for name in names]
    for each in logs:
        each.print(parsed.tail, to_the_end=not parsed.follow)
    while parsed.follow:
        await anyio.sleep(_POLL)
        for each in logs:
            each.print()
        streams.flush()
    return 0


class _Log:
    """The log of one component."""

    def __init__(self, path: Path, prefix: str, out: Console) -> None:
        self._path = path
        self._prefix = prefix
        self._out = out
        self._read = 0
        self._part = b""

    def print(self, tail: int | None = None, *, to_the_end: bool = False) -> None:
        """Print the lines that were written since the last call, of these only the last ``tail``.

        A last line without its end waits for the next call, except ``to_the_end``.
        """
        with self._path.open("rb") as file:
            file.seek(self._read)
            added = file.read()
        self._read += len(added)
        *lines, self._part = (self._part + added).split(b"\n")
        if to_the_end and self._part:
            lines.append(self._part)
        for line in lines if tail is None else deque(lines, maxlen=tail):
            self._out.say(self._prefix + line.decode("utf-8", "replace").expandtabs())
