# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""JSON Web Tokens of service accounts: their parts, claims and signatures. ``issuer`` reads the keys."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
from controller_runtime import log

if TYPE_CHECKING:
    from jwt import PyJWK

ALGORITHMS: Final = frozenset({"RS256", "ES256", "ES384", "ES512"})
"""The algorithms with which the API server signs tokens."""
LONGEST: Final = 16 << 10
"""Maximum number of characters of a token."""

_NOT_BEFORE_LEEWAY: Final = 300.0
"""Seconds by which the clock of the API server may be ahead of ours."""

_log = log.logger_from("status-server")


class DeniedError(Exception):
    """A client may not update the status of a TrainJob. The text is sent to the client; it may be empty."""


class BoundObject(msgspec.Struct, frozen=True):
    """The object that a token is bound to."""

    name: str = ""
    uid: str = ""


class KubernetesClaims(msgspec.Struct, frozen=True):
    """The claims that Kubernetes adds."""

    namespace: str = ""
    pod: BoundObject | None = None


class Claims(msgspec.Struct, frozen=True, rename={"kubernetes": "kubernetes.io"}):
    """The claims that are checked."""

    iss: str = ""
    aud: list[str] | str = []
    exp: float | None = None
    nbf: float | None = None
    kubernetes: KubernetesClaims = KubernetesClaims()

    def require(self, audience: str, namespace: str, now: float) -> None:
        """Check all claims except the issuer and the pod.

        Raises:
            DeniedError: the token is for another audience or namespace, has expired, or is not valid yet.
        """
        if audience not in ([self.aud] if isinstance(self.aud, str) else self.aud):
            raise DeniedError(f"the token is not for the audience {audience}")
        if self.kubernetes.namespace != namespace:
            raise DeniedError(f"the token is not for the namespace {namespace}")
        if self.exp is None or self.exp < now:
            raise DeniedError("the token has expired")
        if self.nbf is not None and self.nbf > now + _NOT_BEFORE_LEEWAY:
            raise DeniedError("the token is not valid yet")


@dataclass(frozen=True, slots=True)
class Token:
    """A token whose signature is not checked yet."""

    raw: str
    key: str
    """The identifier of the key that signed the token, or an empty string."""
    claims: Claims


def parse(raw: str) -> Token:
    """Return the parts of a token.

    Raises:
        DeniedError: the token is too long, is not a JSON Web Token, or has claims of unexpected types.
    """
    import jwt  # takes 60 ms, with cryptography: loaded for the first token

    if len(raw) > LONGEST:
        raise DeniedError(f"the token is longer than {LONGEST >> 10} KiB")
    try:
        parts = jwt.decode_complete(raw, options={"verify_signature": False})
        claims = msgspec.convert(parts["payload"], Claims)
    except (jwt.InvalidTokenError, msgspec.ValidationError, ValueError, RecursionError) as error:
        raise DeniedError("the token is not a JSON Web Token of a service account") from error
    return Token(raw, parts["header"].get("kid", ""), claims)


def keys_of(published: Iterable[dict[str, Any]]) -> list[tuple[str, PyJWK]]:
    """Return the keys that sign with one of :data:`ALGORITHMS`, and their identifiers. Other keys are skipped.

    Each key determines its algorithm, so that a token cannot choose another algorithm.
    """
    import jwt

    usable: list[tuple[str, PyJWK]] = []
    for each in published:
        name = str(each.get("kid", ""))
        try:
            key = jwt.PyJWK(each)
        except (jwt.PyJWTError, ValueError, TypeError, LookupError) as error:
            _log.warning("Key of the token issuer is not usable", key=name, error=error)
            continue
        if key.algorithm_name in ALGORITHMS:
            usable.append((name, key))
    return usable


def is_signed_by(token: Token, key: PyJWK) -> bool:
    """Return True if ``key`` signed ``token``."""
    import jwt

    try:
        jwt.api_jws.decode(token.raw, key, algorithms=[key.algorithm_name])
    except jwt.PyJWTError:
        return False
    return True
