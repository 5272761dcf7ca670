# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The manifests that are shipped with the manager: the folder ``config`` with CRDs, roles, runtimes and webhooks."""

from .shipped import config_directory as config_directory
from .shipped import crds as crds
from .shipped import manifests as manifests
