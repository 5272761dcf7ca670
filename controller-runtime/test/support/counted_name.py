# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Strings that count their comparisons."""

from typing import ClassVar


class CountedName(str):
    """A string; the class counts how often its instances are compared with another value."""

    __slots__ = ()
    __hash__ = str.__hash__
    comparisons: ClassVar[int] = 0

    def __eq__(self, other: object) -> bool:
        CountedName.comparisons += 1
        return str.__eq__(self, other)
