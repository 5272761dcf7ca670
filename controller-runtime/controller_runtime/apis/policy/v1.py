# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Eviction, which is posted to the subresource ``eviction`` of a pod."""

from __future__ import annotations

from controller_runtime.apis.meta.v1 import DeleteOptions
from controller_runtime.machinery import Object


class Eviction(Object, group="policy", version="v1", plural="evictions"):
    delete_options: DeleteOptions | None = None
