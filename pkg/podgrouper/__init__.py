# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""KAI-Scheduler's pod grouper: it finds the top owner of a pod, and writes the PodGroup of the owner's pods."""

from .hub import ANY_VERSION as ANY_VERSION
from .hub import ENTRY_POINT_GROUP as ENTRY_POINT_GROUP
from .hub import GrouperLoadError as GrouperLoadError
from .hub import PluginsHub as PluginsHub
from .hub import new_plugins_hub as new_plugins_hub
from .owners import DirectOwners as DirectOwners
from .pod_controller import PodReconciler as PodReconciler
from .pod_controller import keeps_group as keeps_group
from .podgroup import Rules as Rules
from .podgrouper import Grouping as Grouping
from .podgrouper import PodGrouper as PodGrouper
from .servedrules import fixed as fixed
from .servedrules import rules_of as rules_of
from .settings import Settings as Settings
from .setup import NAME as NAME
from .setup import cache_options as cache_options
from .setup import setup as setup
