# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A kind as written by an operator's author: nested templates, lists that merge by name, conditions."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from controller_runtime.apis.batch.v1 import JobTemplateSpec
from controller_runtime.apis.meta.v1 import Condition
from controller_runtime.machinery import Int32, Object, Struct, is_unset
from controller_runtime.machinery.crd import ATOMIC, MAP_BY_NAME, Markers


class Crew(Struct):
    """A job template and the number of jobs that are created from it."""

    name: Annotated[str, Markers(required=True)] = ""
    group_name: Annotated[str | None, Markers(default="default")] = None
    template: Annotated[JobTemplateSpec, Markers(required=True)] = Field(
        default_factory=JobTemplateSpec, exclude_if=is_unset
    )
    replicas: Annotated[Int32 | None, Markers(default=1)] = None
    targets: Annotated[list[str] | None, ATOMIC] = None
    go_always: ClassVar[frozenset[str]] = frozenset({"name", "template"})


class FleetSpec(Struct):
    """The desired state of a Fleet."""

    crews: Annotated[list[Crew] | None, MAP_BY_NAME] = None
    suspend: bool | None = None
    managed_by: str | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"suspend", "managed_by"})


class FleetStatus(Struct):
    """The observed state of a Fleet."""

    conditions: list[Condition] | None = None
    restarts: int | None = None


class Fleet(Object, group="fleets.example.org", version="v1", kind="Fleet", plural="fleets"):
    """Crews that work together."""

    spec: FleetSpec = Field(default_factory=FleetSpec)
    status: FleetStatus = Field(default_factory=FleetStatus)
