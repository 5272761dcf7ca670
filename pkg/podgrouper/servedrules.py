# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The rules that apply in a cluster: those of the release whose PodGroup the API server serves."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
from controller_runtime import log, rest
from controller_runtime.machinery import JSON
from controller_runtime.machinery.errors import ForbiddenError, StatusError
from controller_runtime.machinery.refreshed import Refreshed
from controller_runtime.rest import PublishedSchema

from .podgroup import OLDEST, Rules

PERIOD: Final = 60.0
"""Seconds between two reads of the schema of the served PodGroup."""
MISSING_TTL: Final = 5.0
"""If we may not read the schema, or the server has not published it, we try again after this many seconds."""
PUBLISHING: Final = 10.0
"""How long we wait for the schema of PodGroup when the server already serves the kind, in seconds."""
_STEP: Final = 0.25
"""Seconds between two reads while we wait for a schema."""

_log: Final = log.logger_from("podgrouper")

Fetch = Callable[[PublishedSchema | None], Awaitable[PublishedSchema | None]]
"""Returns the published schema of PodGroup, or None if the server publishes none.

The argument is the schema of an earlier call. If the schema has not changed since then, the argument is returned.
"""
IsServed = Callable[[], Awaitable[bool]]
"""Returns True if the API server serves PodGroups."""


CurrentRules = Callable[[], Awaitable[Rules]]
"""Returns the rules that apply now. Raises StatusError or RestError if they are unknown."""


def fixed(rules: Rules = OLDEST) -> CurrentRules:
    """Return a function that always returns the rules that a setting names."""

    async def current() -> Rules:
        return rules

    return current


class ServedRules:
    """The rules of the served PodGroup: see :func:`rules_of`.

    The schema is read before the first pod is grouped, and again with every :meth:`refresh`. A server publishes the
    schema of a new CRD a moment after it begins to serve the CRD. Pods wait until then, for at most :data:`PUBLISHING`
    seconds. Without this wait, they would get groups by the rules of another release, and keep them.
    """

    def __init__(self, fetch: Fetch, is_served: IsServed) -> None:
        self._fetch = fetch
        self._is_served = is_served
        self._schema: PublishedSchema | None = None
        self._rules: Refreshed[Rules] = Refreshed(self._read)
        self._waited_in_vain = False
        """True if the schema of the served PodGroup was not published while we waited for it."""
        self._changed = False
        """True if the rules have changed since the last refresh."""

    async def current(self) -> Rules:
        """Return the rules.

        Raises:
            StatusError, RestError: the schema was never read and cannot be read now.
        """
        return await self._rules.current()

    async def refresh(self) -> bool:
        """Read the schema again, and return True if the rules have changed since the last refresh.

        An error changes nothing, and neither does a missing schema after one was read: a server publishes its schemas
        one by one while it starts.
        """
        try:
            await self._rules.refresh()
        except (StatusError, rest.RestError) as error:
            _log.debug("The schema of PodGroup cannot be read", error=error)
        changed, self._changed = self._changed, False
        return changed

    async def _read(self) -> tuple[Rules, float]:
        """Return the rules, and for how many seconds they apply. Rules of a schema apply until a refresh.

        If the kind is served but its schema is not published, only the first call waits for it.
        """
        deadline, ttl = anyio.current_time() + PUBLISHING, MISSING_TTL
        while True:
            try:
                self._schema = await self._fetch(self._schema) or self._schema
            except ForbiddenError as error:
                if self._schema is not None:
                    raise
                _log.debug("The schema of PodGroup may not be read", error=error)
                break
            if self._schema is not None:
                ttl = math.inf
                break
            if not await self._is_served():
                # No group can be written, and the CRD of another release may be installed at any moment.
                self._waited_in_vain, ttl = False, 0.0
                break
            if self._waited_in_vain or anyio.current_time() >= deadline:
                self._waited_in_vain = True
                break
            await anyio.sleep(_STEP)
        schema, before = self._schema, self._rules.value
        rules = OLDEST if schema is None else rules_of(schema.properties)
        if rules is not before:
            self._changed = before is not None
            _log.info(
                "Pods are grouped by the rules of a release",
                rules=str(rules),
                schemaPublished=schema is not None,
            )
        return rules, ttl


def rules_of(properties: JSON) -> Rules:
    """Return the rules for a PodGroup whose schema has these properties."""
    for step in ("spec", "properties"):
        properties = properties.get(step) if isinstance(properties, dict) else None
    if not isinstance(properties, dict) or "minSubGroup" not in properties:
        return OLDEST
    if "preemptionDelay" not in properties:
        return Rules.V0_15
    min_member = properties.get("minMember")
    accepts_zero = isinstance(min_member, dict) and min_member.get("minimum") == 0
    return Rules.V0_18 if accepts_zero else Rules.V0_17
