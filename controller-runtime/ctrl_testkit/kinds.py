# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Kinds as written by an operator's author: nested templates and lists by name, and a kind in two versions."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

from controller_runtime.apis.batch.v1 import JobTemplateSpec
from controller_runtime.apis.machinery.base import Field, Struct, is_unset
from controller_runtime.apis.machinery.crd import ATOMIC, CRD, MAP_BY_NAME, Int32
from controller_runtime.apis.machinery.object import Object
from controller_runtime.apis.meta.v1 import Condition
from controller_runtime.webhook import ConversionError


class Crew(Struct):
    """A job template and the number of jobs that are created from it."""

    name: str = ""
    group_name: Annotated[str | None, CRD(default="default")] = None
    template: Annotated[JobTemplateSpec, CRD(required=True)] = Field(
        default_factory=JobTemplateSpec, exclude_if=is_unset
    )
    replicas: Annotated[Int32 | None, CRD(default=1)] = None
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


class BoatSpec(Struct):
    """How a boat is moved."""

    oars: int | None = None
    sails: list[str] | None = None


class Boat(Object, group="fleets.example.org", version="v1", kind="Boat", plural="boats"):
    """The stored version."""

    spec: BoatSpec = Field(default_factory=BoatSpec)


class BoatSpecV1alpha1(Struct):
    """One text: the number of oars, or the names of the sails."""

    rig: str | None = None


class BoatV1alpha1(Object, group="fleets.example.org", version="v1alpha1", kind="Boat", plural="boats"):
    """The version that came first."""

    spec: BoatSpecV1alpha1 = Field(default_factory=BoatSpecV1alpha1)

    def convert_to_hub(self) -> Boat:
        """Return the boat in v1; a rig of neither form is an error."""
        rig = self.spec.rig or ""
        if rig == "bug":
            raise RuntimeError("oops")
        if rig.isdecimal():
            return Boat(spec=BoatSpec(oars=int(rig)))
        if not rig or not rig.replace(",", "").isalpha():
            raise ConversionError(f"spec.rig: {rig!r} is neither a number nor names")
        return Boat(spec=BoatSpec(sails=rig.split(",")))

    @classmethod
    def convert_from_hub(cls, hub: Boat, /) -> Self:
        """Return the boat in v1alpha1."""
        rig = ",".join(hub.spec.sails) if hub.spec.sails else str(hub.spec.oars)
        return cls(spec=BoatSpecV1alpha1(rig=rig))


def boat_crd(group: str = "fleets.example.org") -> dict[str, Any]:
    """Return the CustomResourceDefinition of both versions."""
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    versions = [
        {"name": name, "served": True, "storage": name == "v1", "schema": {"openAPIV3Schema": schema}}
        for name in ("v1", "v1alpha1")
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"boats.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": "Boat", "listKind": "BoatList", "plural": "boats", "singular": "boat"},
            "scope": "Namespaced",
            "versions": versions,
        },
    }
