# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The local cluster: a real control plane, JobSet, simulated GPU nodes and our manager, without containers."""

from .cluster import Cluster as Cluster
from .cluster import Options as Options
from .nodes import NodeShape as NodeShape
from .state import DEFAULT_NAME as DEFAULT_NAME
from .state import DEMO_NAME as DEMO_NAME
from .state import state_directory as state_directory
