# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The webhooks' certificates: generated, stored in a Secret, trusted by the API server, renewed before they expire."""

from .certificates import EVENT_SOURCE as EVENT_SOURCE
from .certificates import Certificates as Certificates
from .cluster import Cluster as Cluster
from .cluster import Options as Options
from .cluster import connect as connect
from .cluster import operator_namespace as operator_namespace
from .pki import FORMER as FORMER
from .pki import Material as Material
