# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The desired pod group, and how it is written to the cluster."""

from .faircache import FairCache as FairCache
from .handler import Handler as Handler
from .handler import pod_group_for as pod_group_for
from .handler import why_left_out as why_left_out
from .metadata import Metadata as Metadata
from .metadata import SubGroupMetadata as SubGroupMetadata
from .metadata import TopologyConstraintMetadata as TopologyConstraintMetadata
from .rules import OLDEST as OLDEST
from .rules import Rules as Rules
