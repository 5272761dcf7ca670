# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Limits how much a TrainJob's changes may write when they are merged into a template."""

from __future__ import annotations

from typing import Final

from controller_runtime.machinery import JSON
from controller_runtime.machinery.patch import StrategicMergeError

_MOST_VALUES: Final = 500_000
"""Maximum number of values that all merges of one TrainJob may write together.

Writing them takes half a second of CPU time. The limit is reached by 500 overrides with volumes.
"""
_CHARACTERS: Final = 64
"""Number of characters of a text or key that count as one more value."""


class Budget:
    """Counts the values that merges write."""

    def __init__(self) -> None:
        self._left = _MOST_VALUES

    def spend(self, written: JSON, merged: str, advice: str) -> None:
        """Count the values in the result of a merge, before the next merge.

        Raises:
            StrategicMergeError: too many values were written. The text says which items were ``merged``, and ends with
                the ``advice``.
        """
        self._left -= _values(written)
        if self._left < 0:
            raise StrategicMergeError(f"{merged} write more than {_MOST_VALUES} values; {advice}")


def _values(value: JSON) -> int:
    if isinstance(value, str):
        return 1 + len(value) // _CHARACTERS
    if isinstance(value, dict):
        return 1 + sum(map(len, value)) // _CHARACTERS + sum(map(_values, value.values()))
    return 1 + sum(map(_values, value)) if isinstance(value, list) else 1
