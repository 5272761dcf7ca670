# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The meaning of a runtime's labels, and the warning that follows from them."""

from __future__ import annotations

from collections.abc import Mapping

from pkg.apis.config.v1alpha1 import Configuration
from pkg.constants import trainer as constants


def is_support_deprecated(labels: Mapping[str, str] | None) -> bool:
    """Return True if the labels mark a runtime as deprecated."""
    return labels is not None and labels.get(constants.LABEL_SUPPORT) == constants.SUPPORT_DEPRECATED


def deprecation_policy_url(cfg: Configuration) -> str:
    """Return the address of the deprecation policy that the release of ``cfg`` names."""
    if cfg.second_generation:
        return constants.RUNTIME_DEPRECATION_POLICY_URL_2_3
    return constants.RUNTIME_DEPRECATION_POLICY_URL
