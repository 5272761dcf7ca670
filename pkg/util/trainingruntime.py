# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The meaning of a runtime's labels and of its podGroupPolicy, and the warnings that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pkg.apis.config.v1alpha1 import Configuration
from pkg.apis.trainer.v1alpha1 import PodGroupPolicy
from pkg.constants import trainer as constants

NO_SCHEDULER: Final = (
    "{}: no scheduler is named, so the pods are not scheduled as a gang; if one was named, the API server dropped it, "
    "because the installed CRD of the runtime does not have that field"
)
"""The warning about a podGroupPolicy without a scheduler. The placeholder is replaced by the path of the policy."""


def is_support_deprecated(labels: Mapping[str, str] | None) -> bool:
    """Return True if the labels mark a runtime as deprecated."""
    return labels is not None and labels.get(constants.LABEL_SUPPORT) == constants.SUPPORT_DEPRECATED


def deprecation_policy_url(cfg: Configuration) -> str:
    """Return the address of the deprecation policy for the release that ``cfg`` selects."""
    if cfg.second_generation:
        return constants.RUNTIME_DEPRECATION_POLICY_URL_2_3
    return constants.RUNTIME_DEPRECATION_POLICY_URL


def names_no_scheduler(policy: PodGroupPolicy | None) -> bool:
    """Return True if there is a podGroupPolicy without a known scheduler."""
    if policy is None:
        return False
    return policy.coscheduling is None and policy.volcano is None and policy.workload is None
