# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Names that this plugin uses."""

from __future__ import annotations

from typing import Final

INITIALIZER_ENV_STORAGE_URI: Final = "STORAGE_URI"
