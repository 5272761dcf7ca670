# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""One YAML or JSON document, read strictly: duplicate keys are an error, and the line of every key is recorded."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

import msgspec
import yaml
from controller_runtime.apis.machinery.base import JSON
from controller_runtime.apis.machinery.errors import one_line

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MOST_LEVELS: Final = 100
_MOST_LINES: Final = 100_000
_SHOWN: Final = 60

PathSteps = tuple[str | int, ...]


class DocumentError(ValueError):
    """The text is not a single document of plain maps, lists and scalars; ``str()`` names the line."""


class Document(msgspec.Struct, frozen=True):
    """A decoded document and the positions of its parts."""

    data: dict[str, JSON]
    lines: dict[PathSteps, int]
    """The line, counted from one, of each key and list item by its path."""

    def line(self, path: Iterable[str | int]) -> int | None:
        """Return the line of ``path``, or of its nearest ancestor in the document."""
        steps = tuple(path)
        while steps and steps not in self.lines:
            steps = steps[:-1]
        return self.lines.get(steps)


def render_path(path: Iterable[str | int]) -> str:
    """Return a path for people: ``webhook.port``, ``rules[0].name``, ``map["a.b"]``."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif "." in step or not step:
            text += f'["{step}"]'
        else:
            text += f".{step}" if text else step
    return text


def read(text: bytes) -> Document:
    """Decode the single document in ``text``; an empty one is an empty map.

    Raises:
        DocumentError: bad syntax, several documents, a key given twice or not a string, a scalar that does not fit its
            tag, no map at the top, more than a reasonable depth or size.
    """
    loader = _LOADER(text)
    try:
        _check_depth(text)
        node = loader.get_single_node()
        if node is None:
            return Document({}, {})
        lines: dict[PathSteps, int] = {}
        _walk(node, (), lines, loader, set())
        data = loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        where = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        problem = error.problem or error.context or "bad YAML"
        if isinstance(error, yaml.composer.ComposerError) and problem == "but found another document":
            problem = "another document begins; one is expected"
        raise DocumentError(f"{where}{problem}") from error
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        if isinstance(error, DocumentError):
            raise
        raise DocumentError(one_line(error)) from error
    finally:
        loader.dispose()
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise DocumentError("line 1: a map is expected at the top")
    return Document(data, lines)


def _check_depth(text: bytes) -> None:
    """Refuse deep nesting, which would exhaust the stack of the functions that follow it."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MOST_LEVELS:
            line = event.start_mark.line + 1 if event.start_mark else 1
            raise DocumentError(f"line {line}: nested more than {_MOST_LEVELS} levels deep")


def _check_scalar(node: yaml.ScalarNode, path: PathSteps, loader: Any) -> None:
    """Refuse a text that does not fit its tag, such as a date with a 13th month, and a number that JSON lacks."""
    where = (
        f"line {node.start_mark.line + 1}: {render_path(path) or 'the top'}: {node.value[:_SHOWN]!r} is not"
    )
    try:
        value = loader.construct_object(node)
    except (ValueError, LookupError) as error:
        raise DocumentError(f"{where} a value of type {node.tag.rpartition(':')[2]}") from error
    if isinstance(value, float) and not math.isfinite(value):
        raise DocumentError(f"{where} a finite number")


def _walk(
    node: yaml.Node, path: PathSteps, lines: dict[PathSteps, int], loader: Any, above: set[int]
) -> None:
    if id(node) in above:
        raise DocumentError(f"line {node.start_mark.line + 1}: {render_path(path)} contains itself")
    if len(lines) > _MOST_LINES:
        raise DocumentError(f"more than {_MOST_LINES:,} keys and items; do aliases repeat them?")
    above = above | {id(node)}
    if isinstance(node, yaml.MappingNode):
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != "tag:yaml.org,2002:str":
                raise DocumentError(f"line {line}: {render_path(path) or 'the top'}: a key is not a string")
            below = (*path, key_node.value)
            if below in lines:
                raise DocumentError(
                    f"line {line}: {render_path(below)}: key is given twice, before at line {lines[below]}"
                )
            lines[below] = line
            _walk(value_node, below, lines, loader, above)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            lines[(*path, index)] = item.start_mark.line + 1
            _walk(item, (*path, index), lines, loader, above)
    elif isinstance(node, yaml.ScalarNode):
        _check_scalar(node, path, loader)
