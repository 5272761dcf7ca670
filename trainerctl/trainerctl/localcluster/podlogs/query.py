# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The options of a request for a log, as a kubelet reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from controller_runtime.machinery.meta import format_micro_time, parse_time

from trainerctl.localcluster.podlogs.training import Line


@dataclass(frozen=True)
class Query:
    """Which lines to send, and how."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail: int | None = None
    limit: int | None = None
    """Maximum number of bytes."""
    since: datetime | None = None

    @classmethod
    def parse(cls, query: Mapping[str, Sequence[str]], now: datetime) -> Self:
        """Return the options in the query of a URL.

        Raises:
            ValueError: a value is not valid; names the option.
        """
        values = {name: found[-1] for name, found in query.items() if found}
        since = parse_time(values["sinceTime"]) if values.get("sinceTime") else None
        if (seconds := _count(values, "sinceSeconds")) is not None:
            since = now - timedelta(seconds=seconds)
        flags = {name: values.get(name, "").lower() in {"1", "t", "true"} for name in _FLAGS}
        return cls(**flags, tail=_count(values, "tailLines"), limit=_count(values, "limitBytes"), since=since)

    def first(self, lines: Sequence[Line]) -> Sequence[Line]:
        """Return the lines of ``lines`` with which the answer begins."""
        since = self.since
        found = [line for line in lines if since is None or line.at >= since]
        return found if self.tail is None else found[max(0, len(found) - self.tail) :]

    def render(self, line: Line) -> bytes:
        """Return a line as it is sent."""
        stamp = f"{format_micro_time(line.at)} " if self.timestamps else ""
        return f"{stamp}{line.text}\n".encode()


_FLAGS = ("follow", "previous", "timestamps")


def _count(values: Mapping[str, str], name: str) -> int | None:
    text = values.get(name, "")
    if not text or (name == "tailLines" and text == "all"):
        return None
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{name} must be a number: {text!r}")
    return min(int(text), 2**31)
