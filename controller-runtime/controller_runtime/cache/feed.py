# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Feed: applies the reports of one reflector to a store, and tracks whether it succeeds."""

from __future__ import annotations

from typing import Final, Protocol

import anyio
import anyio.lowlevel

from controller_runtime import log, rest
from controller_runtime.machinery import GVK, NamespacedName
from controller_runtime.machinery.errors import NotFoundError

from . import codec, errors
from .outage import Outage
from .reflector import STEP
from .store import Store

_log = log.logger_from("cache")
MISSING_GRACE: Final = 60.0
"""Seconds for which a kind stays readable after the server stopped serving it."""
FAILING_GRACE: Final = 30.0
"""Seconds after which a kind whose lists or watches fail, while others succeed, is reported."""


class Listener(Protocol):
    """Keeps the store and notifies the handlers."""

    gvk: GVK
    store: Store
    outage: Outage

    def put(self, entry: codec.Entry, *, initial: bool, listed: bool = False) -> None:
        """Store an object and report it; ``listed`` when changes before this state may have been missed."""

    def remove(self, key: NamespacedName, version: str, final: codec.Entry | None = None) -> None:
        """Drop an object deleted at ``version`` and report it; without its final state if that was missed."""

    def settle(self, version: str, namespace: str) -> None:
        """Forget the writes up to ``version``: the watch has delivered everything up to there."""

    def skip(self, error: errors.CacheError) -> None:
        """Count and report an object that cannot be read."""

    def changed(self) -> None:
        """Look again at ``synced`` and ``problem``."""


class Feed:
    """Receives the reports of one reflector, of one namespace or all: a ``reflector.Sink``."""

    def __init__(self, engine: Listener, namespace: str) -> None:
        self.synced = False
        self.problem: str | None = None
        self.last_error: Exception | None = None
        self.interrupted_since: float | None = None
        """When the list or watch failed that was the first after the last success, on the loop's clock."""
        self._engine = engine
        self._namespace = namespace
        self._found: set[NamespacedName] | None = None
        self._reached = ""
        self._missing_since: float | None = None
        self._failing_since: float | None = None
        engine.outage.join(self)

    @property
    def readable(self) -> bool:
        """Whether stored objects may be read: all were delivered once, and the kind still exists.

        It stays readable while the server is unreachable or denies the kind: ``problem`` says that it may be stale.
        """
        if not self.synced or self._missing_since is None:
            return self.synced
        return anyio.current_time() - self._missing_since < MISSING_GRACE

    def connected(self) -> None:
        """Record that the server serves this kind: the stored objects are current."""
        self._missing_since = self._failing_since = self.interrupted_since = self.last_error = None
        self._engine.outage.succeeded(self)
        if self.synced:
            self._recover()

    def widen(self) -> None:
        """Follow the whole kind: it has no namespaces."""
        self._namespace = ""

    def covers(self, version: str) -> bool:
        """Return True if the watch has delivered every change up to ``version``; others are deleted.

        Changes of a kind arrive in the order of their versions. Versions that cannot be compared count as delivered.
        """
        return bool(self._reached) and not codec.older(self._reached, version)

    def begin(self) -> None:
        """Start a full listing: objects not reported before :meth:`finish` are deleted."""
        self._found = set()

    def apply(self, entry: codec.Entry) -> None:
        """Store an object."""
        if self._found is not None:
            self._found.add(entry.key)
            self._engine.put(entry, initial=not self.synced, listed=True)
            return
        self._engine.put(entry, initial=not self.synced)
        self._reached = entry.resource_version or self._reached

    def seen(self, key: NamespacedName) -> None:
        """Keep the stored state of an object that exists."""
        if self._found is not None:
            self._found.add(key)

    async def finish(self, resource_version: str) -> None:
        """Drop objects that the listing did not report: their deletions were missed."""
        found, self._found = self._found or set(), None
        self._reached = resource_version
        for number, key in enumerate(self._engine.store.observed_keys(self._namespace), 1):
            if key not in found:
                self._engine.remove(key, resource_version)
            if number % STEP == 0:
                await anyio.lowlevel.checkpoint()
        self._engine.settle(resource_version, self._namespace)
        if not self.synced:
            self.synced = True
            self._engine.changed()
        self._recover()

    def _recover(self) -> None:
        if self.problem is not None:
            self.problem = None
            self._engine.changed()
            kind = str(self._engine.gvk.group_kind)
            _log.info("Kind is served again", kind=kind, namespace=self._namespace)

    def delete(self, entry: codec.Entry) -> None:
        """Drop an object."""
        self._engine.remove(entry.key, entry.resource_version, entry)
        if self._found is None:
            self._reached = entry.resource_version or self._reached

    def lost(self, key: NamespacedName) -> None:
        """Drop an object whose last state cannot be read."""
        self._engine.remove(key, self._reached)

    def reached(self, resource_version: str) -> None:
        """Record that every write up to here has been reported."""
        self._reached = resource_version
        self._engine.settle(resource_version, self._namespace)

    def skip(self, error: errors.BadObjectError) -> None:
        """Count and report an object that cannot be read."""
        self._engine.skip(error)

    def failed(self, error: Exception, *, denied: bool) -> None:
        """Report a failure; a denial degrades the kind until it is served again."""
        self.last_error = error
        if self.interrupted_since is None:
            self.interrupted_since = anyio.current_time()
        kind = str(self._engine.gvk.group_kind)
        if not denied:
            _log.debug("List or watch failed", kind=kind, namespace=self._namespace, error=error)
            self._fail(error)
            return
        self._engine.outage.succeeded(self)
        if isinstance(error, NotFoundError):
            # A server answers the path of a kind without a CRD with a bare "404 page not found".
            error = rest.NoKindMatchError(self._engine.gvk)
        if isinstance(error, rest.NoKindMatchError) and self._missing_since is None:
            self._missing_since = anyio.current_time()
        self._degrade("Kind is missing or denied", error)

    def _fail(self, error: Exception) -> None:
        """Report lasting errors: those of this kind alone here, those of the whole server once for all kinds."""
        now = anyio.current_time()
        self._engine.outage.failed(self, error)
        if self._failing_since is None or self._engine.outage.problem is not None:
            self._failing_since = now
        elif now - self._failing_since >= FAILING_GRACE:
            self._degrade("Kind cannot be listed or watched", error)

    def _degrade(self, message: str, error: Exception) -> None:
        if self.problem is None:
            kind = str(self._engine.gvk.group_kind)
            _log.warning(message, kind=kind, namespace=self._namespace, reason=str(error))
        self.problem = str(error)
        self._engine.changed()
