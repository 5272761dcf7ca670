# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What groupers have in common when they read something beside the owner."""

from __future__ import annotations

from typing import Final

from pkg.apis.machinery.errors import StatusError
from pkg.ctrl.cache import CacheError
from pkg.ctrl.rest import RestError

UNREADABLE: Final = (StatusError, RestError, CacheError)
"""What a Reader raises: the server refused, was not reached, does not serve the kind, or the cache does not have it."""
