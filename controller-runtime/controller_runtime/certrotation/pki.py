# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The content of the Secret: an authority and a serving certificate, their generation and validation.

The authority's key is RSA in PKCS#1: managers in Go that use OPA's cert-controller read only this form, and can share
the Secret or take it over. The serving key is EC, so that a handshake costs next to nothing.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Self, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from controller_runtime.rest import load_chain
from controller_runtime.serving import certificates
from controller_runtime.webhook import server_context

CA_LIFETIME: Final = timedelta(days=3650)
SERVING_LIFETIME: Final = timedelta(days=365)
CA_MARGIN: Final = timedelta(days=400)
"""An authority is replaced this long before it expires.

Until then, the certificates that it signs can have the full lifetime.
"""
SERVING_MARGIN: Final = timedelta(days=120)
"""A serving certificate is renewed this long before it expires. A Go manager renews it 90 days before it expires."""

FORMER: Final = "ca-former.crt"
"""Key of the former authority in the Secret.

Clients need this authority as long as a replica serves with a certificate that it signed.
"""
_KEYS: Final = ("ca.crt", "ca.key", "tls.crt", "tls.key")
_SIGNING: Final = (rsa.RSAPrivateKey, ec.EllipticCurvePrivateKey)
_SERVES: Final = frozenset({ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE})
_BROKEN: Final = (ValueError, TypeError, UnsupportedAlgorithm, InvalidSignature)


class UnusableError(Exception):
    """A certificate or a key is unusable. The message is the reason."""


@dataclass(frozen=True, slots=True)
class Material:
    """The certificates and keys of an authority and of a server, as PEM.

    The authority signed the server's certificate.
    """

    ca_crt: bytes
    ca_key: bytes
    tls_crt: bytes
    tls_key: bytes

    @classmethod
    def from_data(cls, data: Mapping[str, str]) -> Self:
        """Decode a Secret's data. A value that is missing or is not base64 counts as empty."""
        return cls(*(decoded(data.get(key)) for key in _KEYS))

    def to_data(self) -> dict[str, str]:
        """Return a Secret's data."""
        values = (self.ca_crt, self.ca_key, self.tls_crt, self.tls_key)
        return {key: base64.b64encode(value).decode() for key, value in zip(_KEYS, values, strict=True)}

    def __bool__(self) -> bool:
        return any((self.ca_crt, self.ca_key, self.tls_crt, self.tls_key))


@dataclass(frozen=True, slots=True)
class Verdict:
    """The problem of the authority or of the serving certificate. If both are valid, both texts are empty.

    If ``due`` is True, the only problem is that the certificate expires soon.
    """

    authority: str = ""
    serving: str = ""
    due: bool = False

    def __bool__(self) -> bool:
        return not (self.authority or self.serving)

    def __str__(self) -> str:
        return "; ".join(filter(None, (self.authority, self.serving)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Subjects:
    """The names in new certificates."""

    authority: str = "webhook-ca"
    serving: str = "webhooks"
    organization: str = "controller-runtime"


DEFAULT_SUBJECTS: Final = Subjects()


def inspect(material: Material, names: Collection[str], now: datetime) -> Verdict:
    """Check that ``material`` can serve ``names`` and does not expire soon, and return the problems.

    The checks of the keys take some 30 ms. A valid result stays valid until :func:`renewal`.

    Raises:
        OSError: the certificate cannot be loaded at the moment.
    """
    try:
        ca = _pair("ca.crt", material.ca_crt, "ca.key", material.ca_key)
        _check_authority(ca)
        _check_period("ca.crt", ca, now)
    except UnusableError as error:
        return Verdict(authority=str(error))
    try:
        serving = _pair("tls.crt", material.tls_crt, "tls.key", material.tls_key)
        _check_serving(serving, ca, names)
        _check_period("tls.crt", serving, now)
        serving_context(material)
    except UnusableError as error:
        return Verdict(serving=str(error))
    if ca.not_valid_after_utc - now <= CA_MARGIN:
        return Verdict(authority=f"ca.crt expires on {ca.not_valid_after_utc:%Y-%m-%d}", due=True)
    if serving.not_valid_after_utc - now <= SERVING_MARGIN:
        return Verdict(serving=f"tls.crt expires on {serving.not_valid_after_utc:%Y-%m-%d}", due=True)
    return Verdict()


def former_authority(*candidates: bytes, now: datetime) -> bytes:
    """Return the first valid authority, or an empty value."""
    for pem in candidates:
        try:
            _check_authority(certificate(pem))
            _check_period("ca.crt", certificate(pem), now)
        except (UnusableError, *_BROKEN):
            continue
        return pem
    return b""


def renewal(material: Material) -> datetime:
    """Return the time at which the authority or the serving certificate of a valid ``material`` must be renewed."""
    return min(
        certificate(material.ca_crt).not_valid_after_utc - CA_MARGIN,
        certificate(material.tls_crt).not_valid_after_utc - SERVING_MARGIN,
    )


def issue(names: Sequence[str], now: datetime, subjects: Subjects = DEFAULT_SUBJECTS) -> Material:
    """Return a new authority with a serving certificate for ``names``. This takes a tenth of a second of CPU time."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    subject = _name(subjects.authority, subjects)
    unsigned = certificates.authority(
        certificates.builder(subject, subject, key.public_key(), now, now + CA_LIFETIME),
        key.public_key(),
        path_length=None,
        purposes=("digital_signature", "key_encipherment", "key_cert_sign"),
    )
    ca = unsigned.add_extension(certificates.alternative_names([subjects.authority]), critical=False).sign(
        key, hashes.SHA256()
    )
    pkcs1 = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    return reissue(Material(certificates.certificate_pem(ca), pkcs1, b"", b""), names, now, subjects)


def reissue(
    material: Material, names: Sequence[str], now: datetime, subjects: Subjects = DEFAULT_SUBJECTS
) -> Material:
    """Return ``material`` with a new serving certificate for ``names``. The authority of ``material`` must be valid."""
    ca = certificate(material.ca_crt)
    ca_key = serialization.load_pem_private_key(material.ca_key, None)
    assert isinstance(ca_key, _SIGNING)  # noqa: S101 - inspect() has checked it
    key = ec.generate_private_key(ec.SECP256R1())
    until = min(now + SERVING_LIFETIME, ca.not_valid_after_utc)
    unsigned = certificates.leaf(
        certificates.builder(_name(subjects.serving, subjects), ca.subject, key.public_key(), now, until),
        ca_key.public_key(),
        ExtendedKeyUsageOID.SERVER_AUTH,
    )
    serving = unsigned.add_extension(certificates.alternative_names(names), critical=False).sign(
        ca_key, hashes.SHA256()
    )
    return Material(
        material.ca_crt, material.ca_key, certificates.certificate_pem(serving), certificates.private_pem(key)
    )


def serving_context(material: Material) -> ssl.SSLContext:
    """Return a TLS context with the serving certificate.

    Raises:
        UnusableError: the TLS library does not accept the certificate. The library is stricter than the other checks of
            :func:`inspect`.
        OSError: the certificate cannot be loaded at the moment. Loading needs a file descriptor, and all of them may be
            in use.
    """
    context = server_context()
    try:
        load_chain(context, material.tls_crt, material.tls_key)
    except ssl.SSLError as error:
        raise UnusableError(f"tls.crt cannot be used by a server: {error.reason or error}") from error
    return context


def certificate(pem: bytes) -> x509.Certificate:
    """Return the first certificate in ``pem``.

    Raises:
        ValueError: ``pem`` contains no certificate.
    """
    return x509.load_pem_x509_certificate(pem)


def decoded(text: str | None) -> bytes:
    """Return the bytes of base64 text, or nothing if the text is missing or is not base64."""
    try:
        return base64.b64decode(text or "", validate=True)
    except ValueError:
        return b""


def _pair(cert_name: str, cert: bytes, key_name: str, key: bytes) -> x509.Certificate:
    """Check that a certificate and a key belong together, and return the certificate."""
    for name, value in ((cert_name, cert), (key_name, key)):
        if not value:
            raise UnusableError(f"{name} is missing")
    try:
        parsed = certificate(cert)
        public = parsed.public_key()
    except _BROKEN as error:
        raise UnusableError(f"{cert_name} is not a certificate") from error
    try:
        private = serialization.load_pem_private_key(key, None)
    except _BROKEN as error:
        raise UnusableError(f"{key_name} is not a private key") from error
    if not isinstance(private, _SIGNING):
        raise UnusableError(f"{key_name} is neither an RSA nor an EC key")
    if private.public_key() != public:
        raise UnusableError(f"{key_name} does not belong to {cert_name}")
    return parsed


def _check_authority(ca: x509.Certificate) -> None:
    try:
        constraints = _extension(ca, x509.BasicConstraints)
        usage = _extension(ca, x509.KeyUsage)
        str(ca.subject)  # decoded here, to find errors now; a serving certificate repeats the subject
    except _BROKEN as error:
        raise UnusableError("ca.crt is not an authority") from error
    if constraints is None or not constraints.ca or (usage is not None and not usage.key_cert_sign):
        raise UnusableError("ca.crt is not an authority")


def _check_serving(serving: x509.Certificate, ca: x509.Certificate, names: Collection[str]) -> None:
    try:
        serving.verify_directly_issued_by(ca)
    except _BROKEN as error:
        raise UnusableError("tls.crt is not signed by ca.crt") from error
    try:
        alternatives = _extension(serving, x509.SubjectAlternativeName) or ()
        known = {name.value for name in alternatives if isinstance(name, x509.DNSName)}
        known |= {str(name.value) for name in alternatives if isinstance(name, x509.IPAddress)}
        purposes = _extension(serving, x509.ExtendedKeyUsage)
    except _BROKEN as error:
        raise UnusableError("tls.crt names no host") from error
    if purposes is not None and not _SERVES.intersection(purposes):
        raise UnusableError("tls.crt is not for servers")
    if missing := sorted(set(names) - known):
        raise UnusableError(f"tls.crt does not name {', '.join(missing)}")


_Extension = TypeVar("_Extension", bound=x509.ExtensionType)


def _extension(cert: x509.Certificate, kind: type[_Extension]) -> _Extension | None:
    """Return the extension, or None if the certificate lacks it."""
    try:
        return cert.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def _check_period(name: str, cert: x509.Certificate, now: datetime) -> None:
    if cert.not_valid_after_utc <= now:
        raise UnusableError(f"{name} expired on {cert.not_valid_after_utc:%Y-%m-%d}")
    if cert.not_valid_before_utc > now + certificates.SKEW:
        raise UnusableError(f"{name} is not valid before {cert.not_valid_before_utc:%Y-%m-%d}")


def _name(common_name: str, subjects: Subjects) -> x509.Name:
    return x509.Name.from_rfc4514_string(f"CN={common_name},O={subjects.organization}")
