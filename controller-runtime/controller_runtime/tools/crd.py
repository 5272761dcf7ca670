# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Generate CustomResourceDefinitions from the kinds in a module."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from types import ModuleType

from controller_runtime.machinery import JSON, Object, yaml
from controller_runtime.machinery.crd import custom_resource_definition


def load(module: str) -> list[type[Object]]:
    """Return the kinds that ``MODULE`` defines. For ``MODULE:KIND``, return only that kind.

    Raises:
        ValueError: the module cannot be imported, or does not define such a kind with a plural name.
    """
    name, _, wanted = module.partition(":")
    if name.endswith(".py") or "/" in name:
        raise ValueError(f"{name} is a file: name its module, as in an import")
    try:
        loaded = importlib.import_module(name)
    except ImportError as error:
        raise ValueError(f"cannot import {name}: {error}") from error
    kinds = kinds_of(loaded)
    if wanted:
        kinds = [kind for kind in kinds if kind.gvk.kind == wanted]
    if not kinds:
        raise ValueError(f"{name} defines no kind{f' {wanted}' if wanted else ''} with a plural name")
    return kinds


def kinds_of(module: ModuleType) -> list[type[Object]]:
    """Return a module's kinds that have a plural name, sorted.

    A kind that the module imports counts only if a submodule of this module defines it.
    """
    inside = f"{module.__name__}."
    kinds = {
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Object)
        and value.resource is not None
        and f"{value.__module__}.".startswith(inside)
    }
    return sorted(kinds, key=lambda kind: str(kind.gvk))


def file_name(kind: type[Object]) -> str:
    """Return the name that controller-gen gives a kind's file: ``GROUP_PLURAL.yaml``."""
    if kind.resource is None:
        raise ValueError(f"{kind.gvk} has no plural name")
    return f"{kind.gvk.group}_{kind.resource.plural}.yaml"


def definitions(kinds: Iterable[type[Object]]) -> dict[str, JSON]:
    """Return the CustomResourceDefinitions of kinds, by file name. The versions of a kind share one definition.

    Raises:
        TypeError: a field has a type that CustomResourceDefinitions cannot express, or versions contradict each other.
        ValueError: a kind has no plural name.
    """
    versions: dict[str, list[type[Object]]] = {}
    for kind in kinds:
        versions.setdefault(file_name(kind), []).append(kind)
    return {name: custom_resource_definition(*of_file) for name, of_file in versions.items()}


def manifests(kinds: Iterable[type[Object]]) -> dict[str, str]:
    """Return :func:`definitions` as YAML documents."""
    return {name: f"---\n{yaml.dump(crd, sort_keys=True)}" for name, crd in definitions(kinds).items()}
