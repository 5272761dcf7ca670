# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The cluster's issuer of service account tokens: its name and its keys, as the API server publishes them.

The keys come from the API server itself, even if the name of the issuer is an external address.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import anyio
import msgspec
from controller_runtime import log, rest
from controller_runtime.machinery.errors import StatusError
from controller_runtime.machinery.refreshed import Refreshed

from .tokens import Token, is_signed_by, keys_of

if TYPE_CHECKING:
    from jwt import PyJWK

# +kubebuilder:rbac:urls=/.well-known/openid-configuration;/openid/v1/jwks,verbs=get

_DISCOVERY: Final = "/.well-known/openid-configuration"
_KEYS: Final = "/openid/v1/jwks"

_MAX_AGE: Final = 300.0
"""Seconds between two reads of the keys. A withdrawn key is accepted for at most this time, or longer if reads fail."""
_MIN_AGE: Final = 10.0
"""Minimum number of seconds between two reads that are caused by tokens with unknown keys."""
_AFTER_FAILURE: Final = 2.0
"""Minimum number of seconds between a failed read and the next read."""

_TIMEOUT: Final = 5.0

_log = log.logger_from("status-server")


class IssuerError(Exception):
    """The API server publishes no usable issuer."""


class _Discovery(msgspec.Struct):
    issuer: str = ""


class _KeySet(msgspec.Struct):
    keys: list[dict[str, Any]] = []


@dataclass(frozen=True, slots=True)
class Known:
    """The issuer and its keys by identifier."""

    issuer: str
    keys: Sequence[tuple[str, PyJWK]]

    def signed(self, token: Token) -> bool:
        """Return True if one of the keys signed ``token``."""
        return any(is_signed_by(token, key) for name, key in self.keys if not token.key or name == token.key)

    def names(self, token: Token) -> bool:
        """Return True if the key that ``token`` names is known."""
        return not token.key or any(name == token.key for name, _ in self.keys)


class Issuer:
    """Reads the issuer and its keys when they are needed, and keeps them for some minutes."""

    def __init__(self, transport: rest.RoundTripper, clock: Callable[[], float] = anyio.current_time) -> None:
        self._transport = transport
        self._clock = clock
        self._result: Refreshed[tuple[Known | None, Exception | None]] = Refreshed(self._read, clock)
        """The issuer, and why the last read failed."""

    async def known(self, token: Token) -> Known:
        """Return the issuer and its keys. They are read again if they are old or do not include the key of ``token``.

        If reading fails, the earlier result is returned. Errors are raised only until the first read has succeeded.

        Raises:
            IssuerError: the API server publishes no usable issuer.
            StatusError: the API server refused.
            RestError: the API server was unreachable.
        """
        known, _ = self._result.value or (None, None)
        if known is not None and self._result.is_being_read and known.names(token):
            return known  # a slow server must not delay tokens whose keys are known
        is_old = self._clock() >= self._result.read_at + _MIN_AGE
        known, failure = await self._result.current(
            lambda result: not is_old or result[0] is None or result[0].names(token)
        )
        if known is None:
            failure = failure or IssuerError("the issuer has not been read")
            raise failure.with_traceback(None)  # each raise would extend the traceback of the same error
        return known

    async def _read(self) -> tuple[tuple[Known | None, Exception | None], float]:
        try:
            discovered = rest.decoded(_discovery.decode, await self._get(_DISCOVERY))
            published = rest.decoded(_key_set.decode, await self._get(_KEYS))
            return (Known(_named(discovered), keys_of(published.keys)), None), _MAX_AGE
        except (StatusError, rest.RestError, IssuerError) as error:
            _log.error("Keys of the token issuer cannot be read", error=error)
            known, _ = self._result.value or (None, None)
            return (known, error), _AFTER_FAILURE

    async def _get(self, path: str) -> bytes:
        response = await self._transport.send(rest.Request("GET", path, timeout=_TIMEOUT))
        await response.raise_for_status()
        return await response.read()


_discovery: Final = msgspec.json.Decoder(_Discovery)
_key_set: Final = msgspec.json.Decoder(_KeySet)


def _named(discovered: _Discovery) -> str:
    if not discovered.issuer:
        raise IssuerError("the API server publishes no issuer")
    return discovered.issuer
