# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""PriorityClass."""

from typing import ClassVar

from controller_runtime.machinery import Object


class PriorityClass(
    Object, group="scheduling.k8s.io", version="v1", plural="priorityclasses", namespaced=False
):
    value: int | None = None
    global_default: bool | None = None
    description: str | None = None
    preemption_policy: str | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"value"})
