# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Loading the manager's Configuration."""

from .config import RETIRED as RETIRED
from .config import ConfigurationError as ConfigurationError
from .config import load as load
from .options import cert_dir as cert_dir
from .options import manager_options as manager_options
from .options import rest_config as rest_config
from .options import with_feature_gates as with_feature_gates
