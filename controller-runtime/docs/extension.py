# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""How the reference reads the packages: their public names, the markup of docstrings, and no private base classes."""

import re
from typing import Any, Final

import griffe

_LITERAL: Final = re.compile(r"^(.*?)::$", re.MULTILINE)
_ROLE: Final = re.compile(r":(?:attr|class|data|func|meth|mod):`~?\.?([\w.]+)`")


class Exports(griffe.Extension):
    """Takes the names that a package re-exports by ``from .x import y as y`` as its public names."""

    def on_module_members(self, *, mod: griffe.Module, **_: Any) -> None:
        """Set the exports of a package that does not declare them."""
        if not mod.is_init_module or mod.exports:
            return
        mod.exports = [
            name
            for name, member in mod.members.items()
            if member.is_alias
            and not name.startswith("_")
            and member.target_path.startswith("controller_runtime.")
        ] + [
            name
            for name, member in mod.members.items()
            if not member.is_alias and not member.is_module and not name.startswith("_")
        ]


class Markup(griffe.Extension):
    """Turns the Sphinx markup of docstrings, which editors know, into Markdown: roles become links.

    A name that no page of the reference has stays plain code.
    """

    def on_module(self, *, mod: griffe.Module, **_: Any) -> None:
        """Rewrite the docstring of a module."""
        _rewrite(mod)

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of any other object."""
        if not obj.is_module:
            _rewrite(obj)


class PrivateBases(griffe.Extension):
    """Shows the members of a private base class at its public subclasses, and does not show the base itself."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Replace the private bases of a class by their own bases and members."""
        bases: list[str | griffe.Expr] = []
        for base in cls.bases:
            private = _private_class(cls, base)
            if private is None:
                bases.append(base)
                continue
            bases += private.bases
            for name, member in private.members.items():
                if name not in cls.members and not name.startswith("_"):
                    cls.set_member(name, griffe.Alias(name, member))
        cls.bases = bases


def _private_class(cls: griffe.Class, base: str | griffe.Expr) -> griffe.Class | None:
    name = str(base).partition("[")[0]
    if not name.rpartition(".")[2].startswith("_"):
        return None
    found = cls.modules_collection[cls.resolve(name)]
    return found if isinstance(found, griffe.Class) else None


def _rewrite(obj: griffe.Object) -> None:
    if obj.docstring is not None:
        text = _ROLE.sub(lambda role: _reference(obj, role[1]), obj.docstring.value)
        obj.docstring.value = _LITERAL.sub(lambda mark: mark[1] and f"{mark[1]}:", text)


def _reference(obj: griffe.Object, name: str) -> str:
    path = name if name.startswith("controller_runtime.") else _path(obj, name)
    return f'<autoref optional identifier="{path}"><code>{name}</code></autoref>'


def _path(obj: griffe.Object, name: str) -> str:
    """Return the dotted path of a name that is known where ``obj`` is defined, or that its class inherits."""
    first, dot, rest = name.partition(".")
    scope = obj if obj.is_class or obj.parent is None else obj.parent
    if isinstance(scope, griffe.Class) and first in scope.inherited_members:
        return f"{scope.inherited_members[first].canonical_path}{dot}{rest}"
    try:
        return f"{obj.resolve(first)}{dot}{rest}"
    except griffe.NameResolutionError:
        return name
