# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""JSON Web Tokens of service accounts: their parts and their claims. ``issuer`` has the keys for signatures."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any, Final

import msgspec

_NOT_BEFORE_LEEWAY: Final = 300.0
"""Seconds by which the clock of the API server may be ahead of ours."""


class DeniedError(Exception):
    """A client may not update the status of a TrainJob. The text is the reason for the client, possibly empty."""


class Bound(msgspec.Struct, frozen=True):
    """The object that a token is bound to."""

    name: str = ""
    uid: str = ""


class KubernetesClaims(msgspec.Struct, frozen=True):
    """The claims that Kubernetes adds."""

    namespace: str = ""
    pod: Bound | None = None


class Claims(msgspec.Struct, frozen=True, rename={"kubernetes": "kubernetes.io"}):
    """The claims that are checked."""

    iss: str = ""
    aud: list[str] | str = []
    exp: float | None = None
    nbf: float | None = None
    kubernetes: KubernetesClaims = KubernetesClaims()

    def require(self, audience: str, namespace: str, now: float) -> None:
        """Check everything but the issuer and the pod.

        Raises:
            DeniedError: the token is for another audience or namespace, has expired, or is not valid yet.
        """
        if audience not in ([self.aud] if isinstance(self.aud, str) else self.aud):
            raise DeniedError(f"the token is not for the audience {audience}")
        if self.kubernetes.namespace != namespace:
            raise DeniedError(f"the token is not of the namespace {namespace}")
        if self.exp is None or self.exp < now:
            raise DeniedError("the token has expired")
        if self.nbf is not None and self.nbf > now + _NOT_BEFORE_LEEWAY:
            raise DeniedError("the token is not valid yet")


class _Header(msgspec.Struct, frozen=True):
    alg: str = ""
    kid: str = ""
    crit: Any = None
    """Extensions that the recipient must understand. None are supported."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token whose signature is not checked yet."""

    algorithm: str
    key: str
    """The identifier of the key that signed it, or an empty string."""
    claims: Claims
    signed: bytes
    signature: bytes


def parse(raw: str) -> Token:
    """Return the parts of a token.

    Raises:
        DeniedError: it is not a signed token with claims of the expected types.
    """
    parts = raw.split(".")
    if len(parts) != 3:
        raise DeniedError("the token is not a JSON Web Token")
    try:
        header = msgspec.json.decode(base64url(parts[0]), type=_Header)
        claims = msgspec.json.decode(base64url(parts[1]), type=Claims)
        signature = base64url(parts[2])
    except (ValueError, binascii.Error, msgspec.MsgspecError, RecursionError) as error:
        raise DeniedError("the token is not a JSON Web Token of a service account") from error
    if header.crit is not None:
        raise DeniedError("the token has an extension that is not supported")
    return Token(header.alg, header.kid, claims, f"{parts[0]}.{parts[1]}".encode(), signature)


def base64url(part: str) -> bytes:
    """Decode base64url without padding.

    Raises:
        ValueError: other characters occur.
    """
    if not part.isascii() or any(each in part for each in "=+/"):
        raise ValueError("not base64url")
    return base64.b64decode(part.translate(_STANDARD) + "=" * (-len(part) % 4), validate=True)


_STANDARD: Final = str.maketrans("-_", "+/")
