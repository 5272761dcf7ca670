# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Why a pod has no group.

GroupingError           the pod cannot be grouped until it or an owner changes; the text becomes an event on the pod
├── AccessorError       a field of the owner has an unexpected JSON type
└── InvalidOwnerError   an owner reference that no object can match; a retry is useless until the pod changes
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from controller_runtime.cache import CacheError
from controller_runtime.machinery.errors import StatusError
from controller_runtime.machinery.raised import ExpectedError
from controller_runtime.rest import RestError

UNREADABLE: Final = (StatusError, RestError, CacheError)
"""The errors that a Reader raises if it cannot read an object: access denied, server unreachable, kind not served, and
so on.
"""


class GroupingError(ExpectedError):
    """The pod cannot be grouped until the pod or one of its owners changes.

    Chain the cause with ``from``, because callers read the cause.
    """


class AccessorError(GroupingError):
    """A field of the owner has an unexpected JSON type; ``path`` begins with a dot."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path} accessor error: {message}")
        self.path = path


@contextmanager
def failing(prefix: str) -> Iterator[None]:
    """Prefix the text of a GroupingError that the body raises."""
    try:
        yield
    except GroupingError as error:
        # With a traceback, the error would refer to itself since Python 3.13, and wait for the garbage collection.
        raise GroupingError(f"{prefix}{error}") from error.with_traceback(None)


class InvalidOwnerError(GroupingError):
    """An owner reference that no object can match."""
