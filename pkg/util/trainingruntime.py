# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The warnings about a runtime: that it is deprecated, or that its podGroupPolicy names no scheduler."""

from __future__ import annotations

from typing import Final

from controller_runtime.machinery import Object

from pkg.apis.config.v1alpha1 import Configuration
from pkg.apis.trainer.v1alpha1 import PodGroupPolicy
from pkg.constants import trainer as constants

NO_SCHEDULER: Final = (
    "{}: no scheduler is named, so the pods are not scheduled as a gang; if one was named, the API server dropped it, "
    "because the installed CRD of the runtime does not have that field"
)
"""The warning about a podGroupPolicy without a scheduler. The placeholder is replaced by the path of the policy."""


def deprecation_warnings(runtime: Object, cfg: Configuration) -> list[str]:
    """Return a warning with the deprecation policy of the release of ``cfg`` if the runtime's label says so."""
    if runtime.labels.get(constants.LABEL_SUPPORT) != constants.SUPPORT_DEPRECATED:
        return []
    second = cfg.second_generation
    url = constants.RUNTIME_DEPRECATION_POLICY_URL_2_3 if second else constants.RUNTIME_DEPRECATION_POLICY_URL
    text = f'ClusterTrainingRuntime "{runtime.name}" is deprecated and will be removed in a future release of Kubeflow'
    return [f"{text} Trainer. See runtime deprecation policy: {url}"]


def names_no_scheduler(policy: PodGroupPolicy | None) -> bool:
    """Return True if there is a podGroupPolicy without a known scheduler."""
    if policy is None:
        return False
    return policy.coscheduling is None and policy.volcano is None and policy.workload is None
