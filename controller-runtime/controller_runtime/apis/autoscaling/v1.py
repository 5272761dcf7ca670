# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Scale, the content of the subresource ``scale``."""

from typing import ClassVar

from pydantic import Field

from controller_runtime.machinery import Object, Struct


class ScaleSpec(Struct):
    replicas: int | None = None


class ScaleStatus(Struct):
    replicas: int | None = None
    selector: str | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"replicas"})


class Scale(Object, group="autoscaling", version="v1", plural="scales"):
    spec: ScaleSpec = Field(default_factory=ScaleSpec)
    status: ScaleStatus = Field(default_factory=ScaleStatus)
