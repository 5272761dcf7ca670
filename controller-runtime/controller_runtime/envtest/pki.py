# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The certificates of a local control plane, and kubeconfigs that contain them.

Certificates are signed with EC P-256. The service-account key is RSA 2048, which token clients expect.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from controller_runtime.envtest.files import private_directory, write_private
from controller_runtime.serving import certificates

if TYPE_CHECKING:
    from controller_runtime.machinery import JSON

CERTIFICATE_LIFETIME: Final = timedelta(days=365)


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
        """Return a new self-signed authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        now = now or datetime.now(UTC)
        unsigned = certificates.authority(
            certificates.builder(name, name, key.public_key(), now, now + CERTIFICATE_LIFETIME),
            key.public_key(),
            path_length=0,
            purposes=("digital_signature", "key_cert_sign", "crl_sign"),
        )
        return cls(unsigned.sign(key, hashes.SHA256()), key)

    @property
    def certificate(self) -> bytes:
        """The authority's certificate, PEM."""
        return certificates.certificate_pem(self._certificate)

    @property
    def pair(self) -> KeyPair:
        """The authority's certificate and key, for storing."""
        return KeyPair(self.certificate, certificates.private_pem(self._key))

    def server(self, common_name: str, names: Sequence[str], *, now: datetime | None = None) -> KeyPair:
        """Return a serving certificate for ``names``: host names and IP addresses."""
        alternatives = certificates.alternative_names(names)
        return self._issue(common_name, (), ExtendedKeyUsageOID.SERVER_AUTH, alternatives, now)

    def client(self, user: str, groups: Sequence[str] = (), *, now: datetime | None = None) -> KeyPair:
        """Return a client certificate that authenticates ``user`` as a member of ``groups``.

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
        now = now or datetime.now(UTC)
        builder = certificates.leaf(
            certificates.builder(
                subject, self._certificate.subject, key.public_key(), now, now + CERTIFICATE_LIFETIME
            ),
            self._key.public_key(),
            usage,
        )
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return KeyPair(certificates.certificate_pem(certificate), certificates.private_pem(key))


def service_account_key() -> tuple[bytes, bytes]:
    """Return a new private key for signing service-account tokens, and its public key, both PEM."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return certificates.private_pem(key), public


def kubeconfig(
    server: str,
    authority: bytes = b"",
    *,
    user: str,
    client: KeyPair | None = None,
    token: str = "",
    namespace: str = "default",
) -> dict[str, JSON]:
    """Return a self-contained kubeconfig for ``user`` at ``server``, with a client certificate, a token or neither.

    ``authority`` is not needed for plain HTTP.
    """
    identity: dict[str, str] = {"token": token} if token else {}
    if client is not None:
        identity["client-certificate-data"] = _encode(client.certificate)
        identity["client-key-data"] = _encode(client.key)
    endpoint = {"server": server}
    if authority:
        endpoint["certificate-authority-data"] = _encode(authority)
    cluster = "local"
    context = {"cluster": cluster, "user": user, "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster, "cluster": endpoint}],
        "users": [{"name": user, "user": identity}],
        "contexts": [{"name": cluster, "context": context}],
        "current-context": cluster,
    }


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()
