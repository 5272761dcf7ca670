# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Server certificates: read from files that may be replaced, or created for this process alone."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import anyio

from controller_runtime import log, metrics
from controller_runtime.machinery import raised
from controller_runtime.rest import load_chain

PERIOD: Final = 10.0
"""Seconds between two reads of the files."""
_LIFETIME: Final = timedelta(days=365)

_log = log.logger_from("controller-runtime.certwatcher")


class CertificateError(raised.ExpectedError):
    """A certificate and its key cannot be used; the message names the files."""


def server_context() -> ssl.SSLContext:
    """Return a context for servers: TLS 1.2 and newer, HTTP/1.1, no certificate yet.

    No session tickets are sent: API servers never resume a session, and two tickets are an eighth of a handshake's CPU
    time.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    return context


class CertWatcher:
    """Provides a TLS context that follows a certificate file and a key file.

    The files are read every ``period`` seconds, and their contents are compared with the previous ones. If a
    certificate and a key do not match, one of the files may not have been replaced yet, so both are read again later.
    Existing connections keep the certificate with which they began.

    Each pair gets a new context. In an existing context, an RSA certificate would not replace an elliptic-curve
    certificate, because OpenSSL keeps one certificate for each type of key.
    """

    name = "certificate watcher"

    def __init__(self, cert: Path, key: Path, *, period: float = PERIOD) -> None:
        self._cert = cert
        self._key = key
        self._period = period
        self._context: ssl.SSLContext | None = None
        self._loaded: tuple[bytes, bytes] | None = None

    def context(self) -> ssl.SSLContext:
        """Return the context with the certificate and key that were loaded last.

        Raises:
            CertificateError: no usable files have been read so far.
        """
        if self._context is None:
            self.reload()
        assert self._context is not None  # noqa: S101 -- reload raises otherwise
        return self._context

    def reload(self) -> bool:
        """Read the files. If they have changed, load them and return True.

        Raises:
            CertificateError: the files cannot be used; the previous certificate stays in use.
        """
        metrics.CERTWATCHER_READS.inc()
        try:
            pair = (self._cert.read_bytes(), self._key.read_bytes())
        except OSError as error:
            metrics.CERTWATCHER_READ_ERRORS.inc()
            raise CertificateError(f"{error.filename}: {error.strerror}") from error
        if pair == self._loaded:
            return False
        try:
            context = server_context()
            load_chain(context, *pair)
        except (OSError, ValueError) as error:  # OSError also if no file descriptor is free
            metrics.CERTWATCHER_READ_ERRORS.inc()
            raise CertificateError(f"{self._cert}, {self._key}: {error}") from error
        self._context, self._loaded = context, pair
        return True

    async def start(self) -> None:
        """Watch the files until cancelled."""
        _log.info("Starting certificate watcher", cert=self._cert, key=self._key)
        while True:
            await anyio.sleep(self._period)
            try:
                changed = self.reload()
            except CertificateError as error:
                _log.error("Failed to read certificate", error=error)
                continue
            if changed:
                _log.info("Updated current TLS certificate", cert=self._cert)


class SelfSigned:
    """A certificate for ``names`` that is created in memory. It encrypts connections, but does not prove who we are."""

    def __init__(self, *names: str) -> None:
        self._names = names or ("localhost", "127.0.0.1")
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext:
        """Return the context. The first call creates the certificate."""
        if self._context is None:
            context = server_context()
            load_chain(context, *self.pair())
            self._context = context
        return self._context

    def pair(self) -> tuple[bytes, bytes]:
        """Return a new certificate and its key, in PEM."""
        # Imported here: the library takes 60 ms and only servers without files need it.
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec

        from controller_runtime.serving import certificates

        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, self._names[0])])
        now = datetime.now(UTC)
        unsigned = certificates.builder(subject, subject, key.public_key(), now, now + _LIFETIME)
        names = certificates.alternative_names(self._names)
        certificate = unsigned.add_extension(names, critical=False).sign(key, hashes.SHA256())
        return certificates.certificate_pem(certificate), certificates.private_pem(key)
