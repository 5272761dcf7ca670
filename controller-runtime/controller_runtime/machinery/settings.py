# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Mistakes in the values of options, which would otherwise show late or never: a text would count as its letters."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any, Final

_PLAIN: Final[dict[str, tuple[type, ...]]] = {
    "bool": (bool,),
    "float": (int, float),
    "int": (int,),
    "str": (str,),
    "timedelta": (timedelta,),
    "None": (type(None),),
}


def problem_of(options: Any) -> str | None:
    """Return the first field of a dataclass whose value has a wrong type, as a sentence, or None.

    Only fields with plain types, and collections for which a text is given, are checked.
    """
    for each in dataclasses.fields(options):
        words = [word.strip() for word in str(each.type).split("|")]
        value = getattr(options, each.name)
        if any(word.startswith("Collection[") for word in words):
            if isinstance(value, str):
                return f"{each.name} must be a list, such as [{value!r}], not a text"
        elif all(word in _PLAIN for word in words):
            allowed = tuple(kind for word in words for kind in _PLAIN[word])
            if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
                return f"{each.name} must be {' or '.join(words)}, not {type(value).__name__}"
    return None
