# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""config.trainer.kubeflow.org/v1alpha1: the manager's Configuration."""

from .configuration_types import ALLOW as ALLOW
from .configuration_types import CHOICES as CHOICES
from .configuration_types import COMPATIBILITY_VERSIONS as COMPATIBILITY_VERSIONS
from .configuration_types import DENY as DENY
from .configuration_types import V2_1 as V2_1
from .configuration_types import V2_3 as V2_3
from .configuration_types import V2_4 as V2_4
from .configuration_types import Configuration as Configuration
from .configuration_types import ObjectReference as ObjectReference
from .configuration_types import PodGrouper as PodGrouper
from .configuration_types import RuntimePatches as RuntimePatches
from .configuration_types import StatusServer as StatusServer
from .configuration_types import TLSOptions as TLSOptions
from .defaults import defaulted as defaulted
from .defaults import set_defaults as set_defaults
