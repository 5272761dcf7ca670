# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The calls with which the in-memory client is compared with a real API server."""

from typing import Final

from . import applies, creates, deletes, patches, reads, schemas, subresources, updates, watches
from .world import cases_of

CASES: Final = cases_of(creates, reads, updates, patches, applies, deletes, schemas, subresources, watches)
"""The cases in which both give the same result, by name."""
