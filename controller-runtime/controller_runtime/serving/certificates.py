# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Parts of X.509 certificates, shared by the packages that issue certificates. Importing this module takes 60 ms:
import it only to issue a certificate.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

SKEW: Final = timedelta(hours=1)
"""``notBefore`` is set to a time this long before the certificate is issued, because clocks differ."""

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey

_PURPOSES: Final = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


def builder(
    subject: x509.Name, issuer: x509.Name, key: PublicKey, now: datetime, until: datetime
) -> x509.CertificateBuilder:
    """Return an unsigned certificate without extensions, whose validity begins :data:`SKEW` before ``now``."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(until)
    )


def authority(
    unsigned: x509.CertificateBuilder, key: PublicKey, *, path_length: int | None, purposes: Iterable[str]
) -> x509.CertificateBuilder:
    """Return ``unsigned`` with the extensions of a certificate authority whose key is ``key``."""
    return (
        unsigned.add_extension(x509.BasicConstraints(ca=True, path_length=path_length), critical=True)
        .add_extension(key_usage(*purposes), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def leaf(
    unsigned: x509.CertificateBuilder, issuer: PublicKey, usage: x509.ObjectIdentifier
) -> x509.CertificateBuilder:
    """Return ``unsigned`` with the extensions of a server or client certificate. ``issuer`` is the public key of the
    certificate authority.
    """
    return (
        unsigned.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage("digital_signature"), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), critical=False)
    )


def key_usage(*purposes: str) -> x509.KeyUsage:
    """Return an extension that allows only ``purposes``. Use the names in :class:`x509.KeyUsage`."""
    return x509.KeyUsage(**{purpose: purpose in purposes for purpose in _PURPOSES})


def alternative_names(names: Iterable[str]) -> x509.SubjectAlternativeName:
    """Return an extension that names hosts and IP addresses."""
    return x509.SubjectAlternativeName([_general_name(name) for name in names])


def certificate_pem(certificate: x509.Certificate) -> bytes:
    """Return a certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def private_pem(key: PrivateKey) -> bytes:
    """Return a private key as PEM: PKCS#8, not encrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
