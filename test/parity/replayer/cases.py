# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Vector files: the inputs, and the recorded answers of upstream's code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

PROFILES: Final = ("2.1", "2.3")
_SECOND_GENERATION: Final = re.compile(
    rb'"runtimePatches":|"(jax|xgboost|flux)": ?{|-runtime-snapshot"|'
    rb'"op": ?"(mutate|config|statusUpdate|authorize|admit|upgrade)"'
)
"""Fields and operations that only the second generation has."""


class BadVectorFileError(Exception):
    """A file that does not contain vectors; the text names it."""


@dataclass(frozen=True)
class Case:
    """One case; ``input`` is the whole record, including the answer."""

    op: str
    name: str
    want: dict[str, Any]
    input: dict[str, Any]
    profile: str = PROFILES[0]
    """The ``compatibilityVersion`` to which upstream's answer belongs."""


def load(
    files: Iterable[Path],
    families: Sequence[str] = (),
    profile: str | None = None,
    rules: str | None = None,
) -> Iterator[Case]:
    """Yield the cases of files; with ``families``, only those whose name is one of them or below it in the hierarchy.

    Without ``profile``, the fields and operations that a file contains decide its generation. ``rules`` is the release
    of the recorded pod grouper for cases that do not name one.
    """
    for file in files:
        content, found = _read(file)
        version = profile or PROFILES[_SECOND_GENERATION.search(content) is not None]
        for data in found:
            case = _case(file, data, version)
            if rules is not None and case.op in ("owners", "metadata", "reconcile") and "pod" in data:
                case.input["config"] = {"rules": rules, **(data.get("config") or {})}
            if not families or any(_belongs(case.name, family) for family in families):
                yield case


def _read(file: Path) -> tuple[bytes, list[Any]]:
    try:
        content = file.read_bytes()
        found = msgspec.json.decode(content)
    except (OSError, msgspec.DecodeError) as error:
        raise BadVectorFileError(f"{file}: {error}") from error
    if not isinstance(found, list):
        raise BadVectorFileError(f"{file}: not a list of cases")
    return content, found


def _case(file: Path, data: Any, profile: str) -> Case:
    if isinstance(data, dict):
        want = data.get("want", data.get("expect"))
        op, name = data.get("op"), data.get("name")
        if isinstance(op, str) and isinstance(name, str) and isinstance(want, dict):
            return Case(op, name, want, {**data, "profile": profile}, profile)
    raise BadVectorFileError(f"{file}: a case without op, name or want")


def _belongs(name: str, family: str) -> bool:
    return name == family or name.startswith(family if family.endswith("/") else family + "/")
