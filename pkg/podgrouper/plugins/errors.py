# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Why a pod has no group.

GroupingError           the pod cannot be grouped until it or an owner changes; the text becomes an event on the pod
├── AccessorError       a field of the owner has an unexpected JSON type
└── InvalidOwnerError   an owner reference that no object can match; a retry is useless until the pod changes
"""

from __future__ import annotations

from typing import Final

from controller_runtime.cache import CacheError
from controller_runtime.machinery.errors import StatusError
from controller_runtime.rest import RestError

UNREADABLE: Final = (StatusError, RestError, CacheError)
"""The errors that a Reader raises if it cannot read an object: access denied, server unreachable, kind not served, and
so on.
"""


class GroupingError(Exception):
    """The pod cannot be grouped until the pod or one of its owners changes.

    Chain the cause with ``from``, because callers read the cause.
    """

    needs_no_stack = True


class AccessorError(GroupingError):
    """A field of the owner has an unexpected JSON type; ``path`` begins with a dot."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path} accessor error: {message}")
        self.path = path


class failing:  # noqa: N801 # used as a statement, like contextlib.suppress
    """Add a prefix to the text of a GroupingError that the body of the ``with`` statement raises."""

    __slots__ = ("_prefix",)

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __enter__(self) -> None:
        """Enter the body."""

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        """Raise the prefixed error."""
        if isinstance(error, GroupingError):
            raise GroupingError(f"{self._prefix}{error}") from error


class InvalidOwnerError(GroupingError):
    """An owner reference that no object can match."""
