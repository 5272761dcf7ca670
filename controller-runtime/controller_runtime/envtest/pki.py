# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A private certificate authority, made and used in this process.

It signs with EC P-256. The service-account key is RSA 2048, which is what token clients expect.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from controller_runtime.envtest.files import private_directory, write_private

LIFETIME: Final = timedelta(days=365)
_SKEW: Final = timedelta(hours=1)


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes

    def write(self, directory: Path, name: str = "tls") -> tuple[Path, Path]:
        """Write ``<name>.crt`` and ``<name>.key``; return their paths."""
        private_directory(directory)
        return (
            write_private(directory / f"{name}.crt", self.certificate),
            write_private(directory / f"{name}.key", self.key),
        )


class Authority:
    """Signs server and client certificates."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def create(cls, common_name: str, *, now: datetime | None = None) -> Self:
        """Return a new authority that trusts nobody above itself."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        usage = _key_usage(sign=True)
        certificate = (
            _builder(name, name, key.public_key(), now or datetime.now(UTC))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate, key)

    @classmethod
    def load(cls, pair: KeyPair) -> Self:
        """Return the authority that ``pair`` was written by."""
        key = serialization.load_pem_private_key(pair.key, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise TypeError("the authority's key is not an EC key")
        return cls(x509.load_pem_x509_certificate(pair.certificate), key)

    @property
    def certificate(self) -> bytes:
        """The certificate to trust, PEM."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def pair(self) -> KeyPair:
        """The authority itself, for keeping."""
        return KeyPair(self.certificate, _private_pem(self._key))

    def server(self, common_name: str, names: Sequence[str], *, now: datetime | None = None) -> KeyPair:
        """Return a serving certificate for ``names``: host names and IP addresses."""
        alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
        return self._issue(common_name, (), ExtendedKeyUsageOID.SERVER_AUTH, alternatives, now)

    def client(self, user: str, groups: Sequence[str] = (), *, now: datetime | None = None) -> KeyPair:
        """Return a certificate by which the API server knows ``user`` in ``groups``.

        Raises:
            ValueError: a name has more than the 64 characters that X.509 allows.
        """
        return self._issue(user, groups, ExtendedKeyUsageOID.CLIENT_AUTH, None, now)

    def _issue(
        self,
        common_name: str,
        organizations: Sequence[str],
        usage: x509.ObjectIdentifier,
        alternatives: x509.SubjectAlternativeName | None,
        now: datetime | None,
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organizations]
            + [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
        )
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            _builder(subject, self._certificate.subject, key.public_key(), now or datetime.now(UTC))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(sign=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(issuer, critical=False)
        )
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return KeyPair(certificate.public_bytes(serialization.Encoding.PEM), _private_pem(key))


def service_account_key() -> tuple[bytes, bytes]:
    """Return a fresh private key for signing service-account tokens and its public half, both PEM."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return _private_pem(key), public


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + LIFETIME)
    )


def _key_usage(*, sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=sign,
        crl_sign=sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _private_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
