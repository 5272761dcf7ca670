# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The YAML loader: the part of YAML 1.1 that Kubernetes supports, with bounds on the size of a decoded document."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, ClassVar, Final, NoReturn

import yaml

BASE: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG: Final = "tag:yaml.org,2002:"
_MERGE: Final = _TAG + "merge"
MAX_ALIASED: Final = 200_000
"""Maximum number of values that aliases and merges may add to a document: a few lines could add billions."""
MAX_DIGITS: Final = 1_000


class SyntaxProblemError(ValueError):
    """The text cannot be read; ``line`` is counted from one, or None if unknown."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem)
        self.line = line


class Loader(BASE):  # type: ignore[misc] # the C loader, where there is one, is not typed
    """The part of YAML 1.1 that Kubernetes supports."""

    yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, re.Pattern[str]]]]] = {
        first: [
            (tag, pattern)
            for tag, pattern in resolvers
            if tag.removeprefix(_TAG) in ("bool", "null", "merge")
        ]
        for first, resolvers in BASE.yaml_implicit_resolvers.items()
    }

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._flat: dict[int, bool] = {}
        """Maps by identity: False while their merges are applied, True afterwards."""
        self._merged_left = len(stream) + MAX_ALIASED

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Apply ``<<``: the map's own key takes precedence, then the first merged map that has the key.

        Each key is kept once, so that merges of merges cannot multiply, and the work of a document is bounded.
        """
        if id(node) in self._flat:
            if not self._flat[id(node)]:
                raise SyntaxProblemError("a map merges itself", node.start_mark.line + 1)
            return
        self._flat[id(node)] = False
        self._check_keys(node)
        self._merge(node)
        self._flat[id(node)] = True

    def _merge(self, node: yaml.MappingNode) -> None:
        own = [pair for pair in node.value if pair[0].tag != _MERGE]
        if len(own) == len(node.value):
            return
        taken = {key.value for key, _ in own}
        merged: list[tuple[yaml.Node, yaml.Node]] = []
        for key, value in node.value:
            for source in self._sources(value) if key.tag == _MERGE else ():
                self.flatten_mapping(source)
                self._merged_left -= 1 + len(source.value)
                if self._merged_left < 0:
                    raise SyntaxProblemError("merges make it too large", key.start_mark.line + 1)
                fresh = [pair for pair in source.value if pair[0].value not in taken]
                taken.update(pair[0].value for pair in fresh)
                merged += fresh
        node.value = merged + own

    def _sources(self, value: yaml.Node) -> list[yaml.MappingNode]:
        """Return the maps that a ``<<`` refers to."""
        sources = value.value if isinstance(value, yaml.SequenceNode) else [value]
        if not all(isinstance(source, yaml.MappingNode) for source in sources):
            raise SyntaxProblemError("<< needs a map, or a list of maps", value.start_mark.line + 1)
        return list(sources)

    def _check_keys(self, node: yaml.MappingNode) -> None:
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise SyntaxProblemError("a key must be a string", key.start_mark.line + 1)
            if key.value in seen:
                raise SyntaxProblemError(f"key {key.value} is given twice", key.start_mark.line + 1)
            seen.add(key.value)
            if key.tag != _MERGE:
                key.tag = _TAG + "str"

    def construct_yaml_bool(self, node: yaml.ScalarNode) -> bool:
        """Return the boolean; ``!!bool`` may stand before any text."""
        found: bool = self._tagged(super().construct_yaml_bool, node)
        return found

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """Return the number; thousands of digits are an error."""
        if len(node.value) > MAX_DIGITS:
            problem = f"a number has more than {MAX_DIGITS} digits"
            raise SyntaxProblemError(problem, node.start_mark.line + 1)
        number: int = self._tagged(super().construct_yaml_int, node)
        return number

    def construct_yaml_float(self, node: yaml.ScalarNode) -> float | int:
        """Return the number, as an int if it is integral."""
        number: float = self._tagged(super().construct_yaml_float, node)
        if not math.isfinite(number):
            raise SyntaxProblemError(f"{node.value} is not a number in JSON", node.start_mark.line + 1)
        return int(number) if number.is_integer() and abs(number) < 1e21 else number

    def _tagged(self, construct: Callable[[yaml.ScalarNode], Any], node: yaml.ScalarNode) -> Any:
        """Return the value of a scalar whose text need not fit its tag."""
        try:
            return construct(node)
        except (ValueError, LookupError) as error:
            problem = f"{node.value!r} is not a value of type {node.tag.removeprefix(_TAG)}"
            raise SyntaxProblemError(problem, node.start_mark.line + 1) from error

    def construct_other(self, node: yaml.Node) -> NoReturn:
        """Reject a value that JSON cannot represent."""
        kind = node.tag.removeprefix(_TAG)
        raise SyntaxProblemError(f"a value of type {kind} has no place in JSON", node.start_mark.line + 1)


_NUMBERS: Final = list("-+.0123456789")
Loader.add_implicit_resolver(
    _TAG + "int",
    re.compile(
        r"[-+]?(?:0b_*[01][01_]*|0x_*[0-9a-fA-F][0-9a-fA-F_]*|0o_*[0-7][0-7_]*|0[0-7_]*|[1-9][0-9_]*)$"
    ),
    _NUMBERS,
)
Loader.add_implicit_resolver(
    _TAG + "float",
    re.compile(
        r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
    _NUMBERS,
)
Loader.add_constructor(_TAG + "bool", Loader.construct_yaml_bool)
Loader.add_constructor(_TAG + "int", Loader.construct_yaml_int)
Loader.add_constructor(_TAG + "float", Loader.construct_yaml_float)
for _name in ("binary", "timestamp", "omap", "pairs", "set"):
    Loader.add_constructor(_TAG + _name, Loader.construct_other)
