# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Objects that cannot be read: counted, and each reported once."""

from __future__ import annotations

from typing import Final

from controller_runtime import log, metrics
from controller_runtime.machinery import GVK, NamespacedName

from . import errors

_log = log.logger_from("cache")
MAX_REPORTED: Final = 1024
"""Undecodable objects of a kind whose last report is remembered, so that it is not repeated."""


class Unreadable:
    """The objects of a kind that cannot be read."""

    def __init__(self, gvk: GVK) -> None:
        self.skipped = 0
        self._gvk = gvk
        self._reported: dict[NamespacedName, str] = {}

    def skip(self, error: errors.CacheError) -> None:
        """Count and report an object that cannot be read; the others go on."""
        self.count()
        if isinstance(error, errors.UndecodableObjectError) and not self._is_news(error.key, str(error)):
            return
        _log.warning("Object skipped", kind=str(self._gvk.group_kind), reason=str(error))

    def _is_news(self, key: NamespacedName, reason: str) -> bool:
        """Return True if this was not the last report about the object: every read of it fails in the same way."""
        news = self._reported.pop(key, None) != reason
        self._reported[key] = reason
        if len(self._reported) > MAX_REPORTED:
            del self._reported[next(iter(self._reported))]
        return news

    def count(self) -> None:
        """Count an object that cannot be read; the reader reports it."""
        self.skipped += 1
        metrics.CACHE_SKIPPED_OBJECTS.labels(*self._gvk).inc()
