# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""RuntimeClass."""

from typing import ClassVar

from controller_runtime.apis.core.v1 import Toleration
from controller_runtime.machinery import Object, Struct
from controller_runtime.machinery.quantity import ResourceList


class Overhead(Struct):
    pod_fixed: ResourceList | None = None


class Scheduling(Struct):
    node_selector: dict[str, str] | None = None
    tolerations: list[Toleration] | None = None


class RuntimeClass(Object, group="node.k8s.io", version="v1", plural="runtimeclasses", namespaced=False):
    handler: str = ""
    overhead: Overhead | None = None
    scheduling: Scheduling | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"handler"})
