# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Durations as Go writes them: ``15s``, ``1h2m3.5s``, ``500ms``."""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_LONGEST: Final = ((1 << 63) - 1) / 1e9
_PART: Final = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)


def seconds(duration: str | None) -> float:
    """Return the duration in seconds.

    Raises:
        ValueError: the text is not a valid duration, or the duration is longer than Go can represent (about 292 years).
    """
    duration = duration or ""
    rest = duration[1:] if duration[:1] in ("+", "-") else duration
    sign = -1.0 if duration[:1] == "-" else 1.0
    if rest == "0":
        return 0.0
    total, position = 0.0, 0
    while found := _PART.match(rest, position):
        total += float(found[1]) * _UNITS[found[2]]
        position = found.end()
    if not rest or position != len(rest) or total > _LONGEST:
        raise ValueError(f'"{duration}" is not a duration; write it as 15s or 1m30s')
    return sign * total
