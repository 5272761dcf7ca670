# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The rules that apply in a cluster: those of the release whose PodGroup the API server serves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import anyio
from controller_runtime import log, rest
from controller_runtime.apis.machinery.base import JSON
from controller_runtime.apis.machinery.errors import ForbiddenError, StatusError
from controller_runtime.rest import PublishedSchema

from .podgroup import OLDEST, Rules

PERIOD: Final = 60.0
"""Seconds between two looks at the served PodGroup."""
MISSING_TTL: Final = 5.0
"""Seconds for which a PodGroup that is not served, or whose schema is refused, counts as such."""

_log: Final = log.logger_from("podgrouper")

Fetch = Callable[[PublishedSchema | None], Awaitable[PublishedSchema | None]]
"""Returns the served schema of PodGroup, the argument if that is still the same, or None if it is not served."""


class RulesSource(Protocol):
    """Names the rules that apply now."""

    async def current(self) -> Rules:
        """Return the rules. Raises StatusError or RestError if they are unknown."""
        ...


class FixedRules:
    """The rules that a setting names."""

    def __init__(self, rules: Rules = OLDEST) -> None:
        self._rules = rules

    async def current(self) -> Rules:
        """Return the rules."""
        return self._rules


class ServedRules:
    """The rules of the served PodGroup: those of v0.17 if it has ``spec.minSubGroup``.

    The schema is read before the first pod is grouped, and again with every :meth:`refresh`.
    """

    def __init__(self, fetch: Fetch, clock: Callable[[], float] = anyio.current_time) -> None:
        self._fetch = fetch
        self._clock = clock
        self._schema: PublishedSchema | None = None
        self._rules: Rules | None = None
        self._expires: float | None = None
        """When the rules of a PodGroup that is not served expire."""
        self._lock = anyio.Lock()

    async def current(self) -> Rules:
        """Return the rules.

        Raises:
            StatusError, RestError: the schema was never read and cannot be read now.
        """
        if self._rules is None or self._is_expired():
            async with self._lock:
                if self._rules is None or self._is_expired():
                    return await self._read()
        return self._rules

    async def refresh(self) -> bool:
        """Read the schema again; return True if other rules apply than before. An error leaves the rules."""
        async with self._lock:
            before = self._rules
            try:
                after = await self._read()
            except (StatusError, rest.RestError) as error:
                _log.debug("The schema of PodGroup cannot be read", error=error)
                return False
        return before not in (None, after)

    def _is_expired(self) -> bool:
        return self._expires is not None and self._clock() >= self._expires

    async def _read(self) -> Rules:
        try:
            schema = await self._fetch(self._schema)
        except ForbiddenError as error:
            _log.debug("The schema of PodGroup may not be read", error=error)
            schema = None
        if schema is None and self._schema is not None and self._rules is not None:
            return self._rules  # a server that starts publishes its schemas one by one
        rules = OLDEST if schema is None else rules_of(schema.properties)
        if rules is not self._rules:
            _log.info(
                "Pods are grouped by the rules of a release",
                rules=str(rules),
                podGroupServed=schema is not None,
            )
        self._schema, self._rules = schema, rules
        self._expires = self._clock() + MISSING_TTL if schema is None else None
        return rules


def rules_of(properties: JSON) -> Rules:
    """Return the rules for a PodGroup of these properties."""
    for step in ("spec", "properties", "minSubGroup"):
        properties = properties.get(step) if isinstance(properties, dict) else None
    return OLDEST if properties is None else Rules.V0_17
