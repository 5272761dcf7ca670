# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The kinds of policy/v1. An Eviction is posted to the subresource ``eviction`` of a pod."""

from controller_runtime.apis.meta.v1 import DeleteOptions
from controller_runtime.machinery import Object

from .generated import PodDisruptionBudget as PodDisruptionBudget
from .generated import PodDisruptionBudgetSpec as PodDisruptionBudgetSpec
from .generated import PodDisruptionBudgetStatus as PodDisruptionBudgetStatus


class Eviction(Object, group="policy", version="v1", plural="evictions"):
    delete_options: DeleteOptions | None = None
