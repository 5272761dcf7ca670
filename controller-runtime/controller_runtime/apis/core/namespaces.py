# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Namespaces, for :mod:`.v1`: only programs that use these classes load this module."""

from typing import ClassVar

from pydantic import Field

from controller_runtime.machinery import Object, Struct


class NamespaceSpec(Struct):
    finalizers: list[str] | None = None


class NamespaceCondition(Struct):
    type: str = ""
    status: str = ""
    last_transition_time: str | None = None
    reason: str | None = None
    message: str | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"type", "status"})


class NamespaceStatus(Struct):
    phase: str | None = None
    conditions: list[NamespaceCondition] | None = None


class Namespace(Object, group="", version="v1", plural="namespaces", namespaced=False):
    spec: NamespaceSpec = Field(default_factory=NamespaceSpec)
    status: NamespaceStatus = Field(default_factory=NamespaceStatus)
