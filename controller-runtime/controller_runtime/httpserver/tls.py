# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""TLS of a server: the source of its certificate, and the requirements for clients."""

from __future__ import annotations

import ssl
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from .message import ServerError

HTTP_1_1: Final = "http/1.1"


class TLSProvider(Protocol):
    """The source of a server's TLS context."""

    def context(self) -> ssl.SSLContext:
        """Return the context for the next connection: another object once another certificate is served.

        Called for each connection, so it must return the same object until then.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TLSOptions:
    """TLS options of a server. The defaults are TLS 1.2 and newer, OpenSSL's ciphers, and no client certificate."""

    minimum_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    maximum_version: ssl.TLSVersion | None = None
    ciphers: str = ""
    """Ciphers up to TLS 1.2, in OpenSSL's notation; those of TLS 1.3 cannot be chosen."""
    next_protocols: tuple[str, ...] = (HTTP_1_1,)
    """Protocols offered by ALPN; the server implements HTTP/1.1 alone. Empty offers none."""
    client_ca: bytes | Path | None = None
    """Certificate authorities, in PEM, for client certificates; None does not request certificates."""
    client_certificate_required: bool = True
    """With ``client_ca``: False also serves clients that show no certificate."""
    configure: Callable[[ssl.SSLContext], None] | None = None
    """Called last, with the context: for settings without an option here."""

    def apply(self, context: ssl.SSLContext) -> None:
        """Set the options on a server's ``context``.

        Raises:
            ServerError: an option is not valid, or ``client_ca`` cannot be read.
        """
        try:
            with warnings.catch_warnings():
                # The interpreter warns of versions before 1.2; the operator has chosen one.
                warnings.simplefilter("ignore", DeprecationWarning)
                context.minimum_version = self.minimum_version
                if self.maximum_version is not None:
                    context.maximum_version = self.maximum_version
            if self.ciphers:
                context.set_ciphers(self.ciphers)
            if self.client_ca is not None:
                self._demand_certificates(context, self.client_ca)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise ServerError(f"TLS options: {error}") from error
        if set(self.next_protocols) - {HTTP_1_1}:
            raise ServerError(
                f"TLS options: next protocols {', '.join(self.next_protocols)}: only {HTTP_1_1} is served"
            )
        context.set_alpn_protocols(list(self.next_protocols))
        if self.configure is not None:
            self.configure(context)

    def _demand_certificates(self, context: ssl.SSLContext, authorities: bytes | Path) -> None:
        pem = authorities if isinstance(authorities, bytes) else authorities.read_bytes()
        context.load_verify_locations(cadata=pem.decode("ascii", errors="ignore"))
        context.verify_mode = ssl.CERT_REQUIRED if self.client_certificate_required else ssl.CERT_OPTIONAL
