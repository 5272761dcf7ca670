# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Signatures of tokens: RS256, ES256, ES384 and ES512. The import costs 60 ms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from .tokens import Token

_CURVES: Final[dict[str, tuple[ec.EllipticCurve, str, hashes.HashAlgorithm]]] = {
    "P-256": (ec.SECP256R1(), "ES256", hashes.SHA256()),
    "P-384": (ec.SECP384R1(), "ES384", hashes.SHA384()),
    "P-521": (ec.SECP521R1(), "ES512", hashes.SHA512()),
}


@dataclass(frozen=True, slots=True)
class RSAKey:
    """An RSA key, which signs by RS256."""

    key: rsa.RSAPublicKey

    def accepts(self, token: Token) -> bool:
        """Return True if this key signed ``token``."""
        if token.algorithm != "RS256":
            return False
        try:
            self.key.verify(token.signature, token.signed, padding.PKCS1v15(), hashes.SHA256())
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, slots=True)
class CurveKey:
    """A key of an elliptic curve, which determines the algorithm."""

    key: ec.EllipticCurvePublicKey
    algorithm: str
    digest: hashes.HashAlgorithm

    def accepts(self, token: Token) -> bool:
        """Return True if this key signed ``token``."""
        size = (self.key.curve.key_size + 7) // 8
        if token.algorithm != self.algorithm or len(token.signature) != 2 * size:
            return False
        r, s = (int.from_bytes(half) for half in (token.signature[:size], token.signature[size:]))
        try:
            self.key.verify(encode_dss_signature(r, s), token.signed, ec.ECDSA(self.digest))
        except InvalidSignature:
            return False
        return True


def public_key(kind: str, curve: str, numbers: Sequence[bytes]) -> RSAKey | CurveKey | None:
    """Return the key with the numbers n, e, x, y, or None if keys of its kind sign no tokens.

    Raises:
        ValueError: the numbers are not those of a key.
    """
    n, e, x, y = (int.from_bytes(each) for each in numbers)
    if kind == "RSA":
        return RSAKey(rsa.RSAPublicNumbers(e, n).public_key())
    if kind == "EC" and curve in _CURVES:
        parameters, algorithm, digest = _CURVES[curve]
        key = ec.EllipticCurvePublicNumbers(x, y, parameters).public_key()
        return CurveKey(key, algorithm, digest)
    return None
