# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A sampling profiler: a thread that samples the stacks of the others, and two output formats."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from types import CodeType
from typing import Final

import msgspec

from .stacks import frames_of

_SCHEMA: Final = "https://www.speedscope.app/file-format-schema.json"

Stack = tuple[CodeType, ...]
"""The functions of a stack, the outermost first."""


@dataclass
class Profile:
    """How often each stack of each thread was seen."""

    seconds: float = 0
    """How long was sampled."""
    samples: int = 0
    """How often."""
    threads: dict[str, Counter[Stack]] = field(default_factory=dict)

    def collapsed(self) -> str:
        """Return a line for each stack, as flame graph tools read it: ``thread;outer;inner count``."""
        lines = [
            ";".join([_text(name), *map(_name, stack)]) + f" {count}"
            for name, stacks in self.threads.items()
            for stack, count in stacks.most_common()
        ]
        return "".join(f"{line}\n" for line in lines)

    def speedscope(self) -> bytes:
        """Return the profile in speedscope's JSON format, a profile for each thread."""
        frames: dict[CodeType, int] = {}
        weight = self.seconds / self.samples if self.samples else 0
        profiles = [
            {
                "type": "sampled",
                "name": name,
                "unit": "seconds",
                "startValue": 0,
                "endValue": weight * stacks.total(),
                "samples": [[frames.setdefault(code, len(frames)) for code in stack] for stack in stacks],
                "weights": [weight * count for count in stacks.values()],
            }
            for name, stacks in self.threads.items()
        ]
        shared = [
            {"name": code.co_qualname, "file": code.co_filename, "line": code.co_firstlineno}
            for code in frames
        ]
        return msgspec.json.encode({"$schema": _SCHEMA, "shared": {"frames": shared}, "profiles": profiles})


def sample(seconds: float, hz: float, stop: threading.Event) -> Profile:
    """Return a profile of all threads but the calling one, over ``seconds`` or until ``stop`` is set.

    It blocks: call it in a thread. A sample takes some tens of microseconds a thread, and blocks other Python code.
    """
    profile, own = Profile(), threading.get_ident()
    began = due = time.monotonic()
    while due < began + seconds and not stop.wait(max(0.0, due - time.monotonic())):
        names = {each.ident: each.name for each in threading.enumerate()}
        for ident, frame in sys._current_frames().items():
            if ident != own:
                stack = tuple(each.f_code for each in frames_of(frame))
                profile.threads.setdefault(names.get(ident, str(ident)), Counter())[stack] += 1
        profile.samples += 1
        # A sample that is late is left out: the process was too busy for it.
        due = max(due + 1 / hz, time.monotonic())
    profile.seconds = time.monotonic() - began
    return profile


def _name(code: CodeType) -> str:
    folder, _, file = code.co_filename.rpartition("/")
    return _text(f"{code.co_qualname} ({folder.rpartition('/')[2]}/{file}:{code.co_firstlineno})")


def _text(name: str) -> str:
    return name.replace(";", ",").replace("\n", " ")
