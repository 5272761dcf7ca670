# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The plugin framework: the extension points, the plugins, and the Framework that runs them."""

from .core import Framework as Framework
from .core import new as new
from .interface import ComponentBuilderPlugin as ComponentBuilderPlugin
from .interface import CustomValidationPlugin as CustomValidationPlugin
from .interface import EnforceMLPolicyPlugin as EnforceMLPolicyPlugin
from .interface import EnforcePodGroupPolicyPlugin as EnforcePodGroupPolicyPlugin
from .interface import InvalidFieldError as InvalidFieldError
from .interface import Observer as Observer
from .interface import Plugin as Plugin
from .interface import PluginError as PluginError
from .interface import PluginFactory as PluginFactory
from .interface import PodNetworkPlugin as PodNetworkPlugin
from .interface import TrainJobStatusPlugin as TrainJobStatusPlugin
from .interface import UnavailableError as UnavailableError
from .interface import WatchExtensionPlugin as WatchExtensionPlugin
