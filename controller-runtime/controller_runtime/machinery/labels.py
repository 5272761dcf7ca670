# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Label selectors: parse them, build them from maps or a metav1.LabelSelector, match them, and write them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from . import field, names
from .gojson import quote
from .meta import LabelSelector

LabelSelectorLike = str | Mapping[str, str | Iterable[str]] | LabelSelector
"""A text such as ``"a=b,c in (d,e)"``, a map that has one required value or several allowed values for each label
key, or a metav1.LabelSelector, which selects everything if it is empty."""


class SelectorError(ValueError):
    """The text or the struct is not a valid selector."""


class Operator(StrEnum):
    """The operator of a requirement; its value is the operator's text."""

    IN = "in"
    NOT_IN = "notin"
    EQUALS = "="
    DOUBLE_EQUALS = "=="
    NOT_EQUALS = "!="
    EXISTS = "exists"
    DOES_NOT_EXIST = "!"
    GREATER_THAN = ">"
    LESS_THAN = "<"


_SETS: Final = (Operator.IN, Operator.NOT_IN)
_NUMBERS: Final = (Operator.GREATER_THAN, Operator.LESS_THAN)
_UNARY: Final = (Operator.EXISTS, Operator.DOES_NOT_EXIST)


class Requirement(msgspec.Struct, frozen=True):
    """A condition on one label. An absent label satisfies only ``notin``, ``!=`` and ``!``."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return True if ``labels`` meet this requirement."""
        value = labels.get(self.key)
        match self.operator:
            case Operator.IN | Operator.EQUALS | Operator.DOUBLE_EQUALS:
                return value is not None and value in self.values
            case Operator.NOT_IN | Operator.NOT_EQUALS:
                return value is None or value not in self.values
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
            case _:
                number = None if value is None else _integer(value)
                limit = _integer(self.values[0])
                if number is None or limit is None:
                    return False
                return number > limit if self.operator is Operator.GREATER_THAN else number < limit

    def __str__(self) -> str:
        match self.operator:
            case Operator.EXISTS:
                return self.key
            case Operator.DOES_NOT_EXIST:
                return f"!{self.key}"
            case Operator.IN | Operator.NOT_IN:
                return f"{self.key} {self.operator} ({','.join(sorted(self.values))})"
            case _:
                return f"{self.key}{self.operator}{self.values[0]}"


class Selector(msgspec.Struct, frozen=True):
    """Requirements that must all be met, sorted by key. A selector without requirements matches everything."""

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False
    """True if the selector matches nothing, regardless of its requirements. Its text is then empty, as in Go."""

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Return True if ``labels`` meet all requirements."""
        if self.nothing:
            return False
        return all(requirement.matches(labels or {}) for requirement in self.requirements)

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


EVERYTHING: Final = Selector()
NOTHING: Final = Selector(nothing=True)


def requirement(key: str, operator: Operator, values: Iterable[str] = ()) -> Requirement:
    """Return a requirement that the API server accepts.

    Raises:
        SelectorError: the key or a value is not valid for a label, or the number of values is not valid for the
            operator.
    """
    given = tuple(values)
    path = field.Path("values")
    errors = field.ErrorList(_key_errors(key, "key"))
    if problem := _misfit(operator, given):
        errors.append(field.invalid(path, given, problem))
    elif operator in _NUMBERS and _integer(given[0]) is None:
        problem = "for 'Gt', 'Lt' operators, the value must be an integer"
        errors.append(field.invalid(path.index(0), given[0], problem))
    for index, value in enumerate(given):
        if wrong := names.is_label_value(value):
            errors.append(field.invalid(path.index(index).key(key), value, "; ".join(wrong)))
    if aggregate := errors.to_aggregate():
        raise SelectorError(str(aggregate))
    return Requirement(key, operator, given)


def _misfit(operator: Operator, values: tuple[str, ...]) -> str | None:
    """Return an error message if the number of values is wrong, or None."""
    if operator in _SETS:
        return None if values else "for 'in', 'notin' operators, values set can't be empty"
    if operator in _UNARY:
        return "values set must be empty for exists and does not exist" if values else None
    if len(values) == 1:
        return None
    if operator in _NUMBERS:
        return "for 'Gt', 'Lt' operators, exactly one value is required"
    return "exact-match compatibility requires one single value"


def _key_errors(key: str, path: str) -> list[field.FieldError]:
    wrong = names.is_qualified_name(key)
    return [field.invalid(field.Path(path), key, "; ".join(wrong))] if wrong else []


def parse(text: str) -> Selector:
    """Parse a selector.

    Raises:
        SelectorError: ``text`` is not a valid selector.
    """
    return Selector(tuple(sorted(_Parser(text).requirements(), key=lambda requirement: requirement.key)))


def selector(like: LabelSelectorLike | None) -> Selector:
    """Return the selector for text, a map or a metav1.LabelSelector; None selects everything.

    Raises:
        SelectorError: the text or the struct is not a valid selector. The syntax of a map's keys and values is not
            checked.
        TypeError: a map's value is neither a string nor an iterable of strings.
    """
    if like is None:
        return EVERYTHING
    if isinstance(like, str):
        return parse(like)
    if isinstance(like, LabelSelector):
        return from_label_selector(like)
    if not isinstance(like, Mapping):
        raise TypeError(f"a label selector is a text, a map or a LabelSelector, not {type(like).__name__}")
    return Selector(tuple(_wanted(key, value) for key, value in sorted(like.items())))


def _wanted(key: str, value: str | Iterable[str]) -> Requirement:
    if isinstance(value, str):
        return Requirement(key, Operator.EQUALS, (value,))
    if isinstance(value, Mapping):
        raise TypeError(f"label {key!r} has a map: for the JSON of a selector, use LabelSelector.from_dict")
    values = tuple(value) if isinstance(value, Iterable) else (value,)
    if any(not isinstance(value, str) for value in values):
        raise TypeError(f"label {key!r}: {value!r} must be a string or several strings")
    return Requirement(key, Operator.IN, values)


def selector_string(like: LabelSelectorLike | None) -> str:
    """Return the query parameter for a selector; text is returned unchanged."""
    return like if isinstance(like, str) else str(selector(like))


_STRUCT_OPERATORS: Final = {
    "In": Operator.IN,
    "NotIn": Operator.NOT_IN,
    "Exists": Operator.EXISTS,
    "DoesNotExist": Operator.DOES_NOT_EXIST,
}


def from_label_selector(struct: LabelSelector | None) -> Selector:
    """Return the selector for a metav1.LabelSelector: None selects nothing, an empty one selects everything.

    Raises:
        SelectorError: an expression is malformed.
    """
    if struct is None:
        return NOTHING
    requirements = [
        requirement(key, Operator.EQUALS, [value]) for key, value in (struct.match_labels or {}).items()
    ]
    for expression in struct.match_expressions or ():
        operator = _STRUCT_OPERATORS.get(expression.operator)
        if operator is None:
            raise SelectorError(f"{quote(expression.operator)} is not a valid label selector operator")
        requirements.append(requirement(expression.key, operator, expression.values or ()))
    return Selector(tuple(sorted(requirements, key=lambda requirement: requirement.key)))


def _integer(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,63}", text, re.ASCII) and abs(int(text)) < 2**63 else None


_TOKEN: Final = re.compile(r"\s*(==|!=|[=!(),<>]|[^\s=!(),<>]+|$)", re.ASCII)
_END: Final = ""
_SPECIAL: Final = frozenset(("==", "!=", "=", "!", "(", ")", ",", "<", ">", _END))


class _Parser:
    """A recursive descent parser.

    ``in`` and ``notin`` are operators only after a key; elsewhere they are ordinary words.
    """

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = [*_TOKEN.findall(text.strip()), _END]
        self._at = 0

    def requirements(self) -> Iterator[Requirement]:
        while self._peek() != _END:
            yield self._requirement()
            if self._peek() == _END:
                return
            if (word := self._next()) != ",":
                raise SelectorError(f"found '{word}', expected: ',' or 'end of string'")
            if (word := self._peek()) in _SPECIAL and word != "!":
                raise SelectorError(f"found '{word}', expected: identifier after ','")

    def _peek(self) -> str:
        return self._tokens[self._at]

    def _next(self) -> str:
        word = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return word

    def _requirement(self) -> Requirement:
        if absent := self._peek() == "!":
            self._next()
        key = self._next()
        if key in _SPECIAL:
            if absent:
                raise SelectorError(f"unable to parse requirement: found '{key}', expected: identifier")
            raise SelectorError(f"found '{key}', expected: !, identifier, or 'end of string'")
        try:
            self._check_key(key)
            if absent:
                return requirement(key, Operator.DOES_NOT_EXIST)
            if self._peek() in (_END, ","):
                return requirement(key, Operator.EXISTS)
            return self._binary(key)
        except SelectorError as error:
            raise SelectorError(f"unable to parse requirement: {error}") from error

    @staticmethod
    def _check_key(key: str) -> None:
        for error in _key_errors(key, "<nil>"):  # Go passes no path here, so its message shows <nil>
            raise SelectorError(str(error))

    def _binary(self, key: str) -> Requirement:
        word = self._next()
        if word in ("in", "notin"):
            return requirement(key, Operator(word), self._values())
        if word not in ("=", "==", "!=", ">", "<"):
            raise SelectorError(f"found '{word}', expected: in, notin, =, ==, !=, gt, lt")
        if self._peek() in (_END, ","):
            return requirement(key, Operator(word), [""])
        value = self._next()
        if value in _SPECIAL:
            raise SelectorError(f"found '{value}', expected: identifier")
        return requirement(key, Operator(word), [value])

    def _values(self) -> list[str]:
        if (word := self._next()) != "(":
            raise SelectorError(f"found '{word}' expected: '('")
        values: set[str] = set()
        while True:
            word = self._peek()
            values.add("" if word in (",", ")") else self._identifier(first=not values))
            if (word := self._next()) == ")":
                return sorted(values)
            if word != ",":
                raise SelectorError(f"found '{word}', expected: ',' or ')'")

    def _identifier(self, *, first: bool) -> str:
        word = self._next()
        if word in _SPECIAL:
            expected = "',', ')' or identifier" if first else "',', or identifier"
            raise SelectorError(f"found '{word}', expected: {expected}")
        return word
