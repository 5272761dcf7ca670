# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Names that clients, manifests and dashboards can see."""

from . import kai as kai
from . import trainer as trainer
