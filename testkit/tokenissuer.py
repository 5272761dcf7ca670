# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""An issuer of tokens, and the keys that the API server publishes for it."""

import base64
import json
from typing import Any

import anyio
from controller_runtime import rest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

ISSUER = "https://issuer.example.org"
CURVES = {
    "ES256": (ec.SECP256R1(), "P-256", hashes.SHA256()),
    "ES384": (ec.SECP384R1(), "P-384", hashes.SHA384()),
    "ES512": (ec.SECP521R1(), "P-521", hashes.SHA512()),
}


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value: int, size: int = 0) -> str:
    return base64url(value.to_bytes(size or (value.bit_length() + 7) // 8))


class Authority:
    """Signs tokens, and answers as the API server that publishes its keys.

    ``broken`` makes the API server unreachable, and ``seconds`` is the delay of each answer.
    """

    def __init__(self) -> None:
        self.keys: dict[str, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey] = {}
        self.broken = False
        self.seconds = 0.0
        self.transport = rest.FakeTransport(self._answer)

    def add(self, name: str, algorithm: str = "ES256") -> None:
        if algorithm == "RS256":
            self.keys[name] = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        else:
            self.keys[name] = ec.generate_private_key(CURVES[algorithm][0])

    def sign(self, name: str, claims: dict[str, Any], **header: Any) -> str:
        key = self.keys[name]
        algorithm = "RS256" if isinstance(key, rsa.RSAPrivateKey) else _algorithm(key)
        parts = [{"alg": algorithm, "kid": name, **header}, {"iss": ISSUER, **claims}]
        text = ".".join(base64url(json.dumps(part).encode()) for part in parts)
        if isinstance(key, rsa.RSAPrivateKey):
            signature = key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
        else:
            size = (key.curve.key_size + 7) // 8
            r, s = decode_dss_signature(key.sign(text.encode(), ec.ECDSA(CURVES[algorithm][2])))
            signature = r.to_bytes(size) + s.to_bytes(size)
        return f"{text}.{base64url(signature)}"

    async def _answer(self, request: rest.Request) -> rest.FakeResponse:
        await anyio.sleep(self.seconds)
        if self.broken:
            raise rest.TransportError("unreachable", host="https://fake")
        if request.path == "/.well-known/openid-configuration":
            return rest.FakeResponse(
                body={"issuer": ISSUER, "jwks_uri": "https://elsewhere.example.org/keys"}
            )
        assert request.path == "/openid/v1/jwks"
        return rest.FakeResponse(body={"keys": [_published(name, key) for name, key in self.keys.items()]})


def _algorithm(key: ec.EllipticCurvePrivateKey) -> str:
    return next(name for name, (curve, _, _) in CURVES.items() if curve.name == key.curve.name)


def _published(name: str, key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> dict[str, str]:
    if isinstance(key, rsa.RSAPrivateKey):
        numbers = key.public_key().public_numbers()
        return {"kty": "RSA", "kid": name, "n": number(numbers.n), "e": number(numbers.e)}
    point = key.public_key().public_numbers()
    size = (key.curve.key_size + 7) // 8
    curve = CURVES[_algorithm(key)][1]
    return {"kty": "EC", "kid": name, "crv": curve, "x": number(point.x, size), "y": number(point.y, size)}
