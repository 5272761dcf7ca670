# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The names of objects."""

from collections.abc import Iterable

from controller_runtime.apis.machinery.object import Object


def names(objects: Iterable[Object]) -> list[str]:
    return [obj.name for obj in objects]
