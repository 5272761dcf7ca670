# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The structs that several versions share."""

from typing import ClassVar

from controller_runtime.apis.meta.v1 import Condition
from controller_runtime.machinery import JSON, Struct


class GangSchedulingPolicy(Struct):
    """The pods of a group are scheduled together or not at all."""

    min_count: int = 0
    go_always: ClassVar[frozenset[str]] = frozenset({"min_count"})


class PodGroupSchedulingPolicy(Struct):
    """The policy of a group: exactly one member is set."""

    basic: dict[str, JSON] | None = None
    gang: GangSchedulingPolicy | None = None


class PodGroupStatus(Struct):
    """The observed state of a PodGroup."""

    conditions: list[Condition] | None = None
