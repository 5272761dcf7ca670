# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Markers: comments such as ``# +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

_NOT_SOURCES = frozenset({"site-packages", "__pycache__"})

Fields = dict[str, list[str]]
"""The fields of a marker. A field has a list of values, which the marker separates by ``;``."""


class MarkerError(ValueError):
    """A marker is not valid."""


def fields_of(text: str, kind: str, required: Iterable[str], optional: Iterable[str]) -> Iterator[Fields]:
    """Yield the fields of each ``+kubebuilder:KIND`` marker in a source text.

    Raises:
        MarkerError: a marker lacks a required field, or has an unknown field. The message contains the marker.
    """
    required = tuple(required)
    known = {*required, *optional}
    for marker in re.findall(rf"^[ \t]*# \+kubebuilder:{kind}:(\S+)$", text, re.MULTILINE):
        fields = dict(field.partition("=")[::2] for field in marker.split(","))
        for name in required:
            if name not in fields:
                raise MarkerError(f"the marker +kubebuilder:{kind}:{marker} has no field {name}")
        if unknown := sorted(fields.keys() - known):
            raise MarkerError(f"the marker +kubebuilder:{kind}:{marker} has an unknown field {unknown[0]}")
        yield {name: value.strip('"').split(";") for name, value in fields.items()}


def one(fields: Mapping[str, list[str]], name: str, default: str = "") -> str:
    """Return the single value of a field.

    Raises:
        MarkerError: the field has several values.
    """
    values = fields.get(name, [default])
    if len(values) != 1:
        raise MarkerError(f"the field {name} of a marker has more than one value: {';'.join(values)}")
    return values[0]


def sources(*paths: Path) -> Iterator[Path]:
    """Yield the files in ``paths``, and the Python files in its folders and their subfolders, except hidden folders.

    Raises:
        FileNotFoundError: a path does not exist.
    """
    for path in paths:
        if path.is_dir():
            yield from (
                source for source in sorted(path.rglob("*.py")) if _is_source(source.relative_to(path))
            )
        elif path.exists():
            yield path
        else:
            hint = ""
            if all(
                part.isidentifier() for part in str(path).split(".")
            ):  # a module, which other commands take
                module = Path(*str(path).split("."))
                near = next(
                    (candidate for candidate in (module, module.with_suffix(".py")) if candidate.exists()),
                    None,
                )
                hint = f"; did you mean {near}?" if near else ""
            raise FileNotFoundError(f"{path}: no such file or folder{hint}")


def _is_source(path: Path) -> bool:
    return not any(part.startswith(".") or part in _NOT_SOURCES for part in path.parts)
