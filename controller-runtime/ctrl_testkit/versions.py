# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A kind in two versions, as written by an operator's author: v1 is the hub, v1alpha1 converts to and from v1."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field

from controller_runtime.machinery import Object, Struct
from controller_runtime.webhook import ConversionError


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


def boat_crd() -> dict[str, Any]:
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
        "metadata": {"name": "boats.fleets.example.org"},
        "spec": {
            "group": "fleets.example.org",
            "names": {"kind": "Boat", "listKind": "BoatList", "plural": "boats", "singular": "boat"},
            "scope": "Namespaced",
            "versions": versions,
        },
    }
