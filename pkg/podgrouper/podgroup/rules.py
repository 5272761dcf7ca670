# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The rules of grouping. Each release of KAI-Scheduler expects groups as its own pod grouper writes them."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Rules(StrEnum):
    """The release whose rules apply. Later releases are greater."""

    V0_13 = "v0.13"
    """A group and its subgroups require numbers of pods (``minMember``)."""
    V0_15 = "v0.15"
    """The rules of v0.17, except that a group has no durations. They apply to v0.15 and v0.16."""
    V0_17 = "v0.17"
    """A group, or a subgroup with subgroups, may require a number of subgroups (``minSubGroup``) instead of pods."""
    V0_18 = "v0.18"
    """The rules of KAI-Scheduler's main branch after v0.17: those of v0.17, but a group may require no pods at all."""


OLDEST: Final = Rules.V0_13
"""The rules that apply while the schema of PodGroup is unknown.

Most groups that follow them work with all releases. KAI v0.17 refuses a new group if a subgroup requires no pods, as in
an elastic PyTorchJob, or if a subgroup with segments requires pods.
"""
