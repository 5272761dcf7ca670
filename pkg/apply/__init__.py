# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Upserts into the lists of an apply configuration, the JSON of a typed Go client, and the comparison of objects."""

from . import drift as drift
from .apply import env_var as env_var
from .apply import env_vars as env_vars
from .apply import upsert_env_vars as upsert_env_vars
from .apply import upsert_port as upsert_port
from .apply import upsert_volume_mounts as upsert_volume_mounts
from .apply import upsert_volumes as upsert_volumes
from .drift import item_key as item_key
from .typed import as_typed as as_typed
