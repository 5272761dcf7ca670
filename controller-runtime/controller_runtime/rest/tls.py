# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""TLS settings of a connection, and the SSL context built from them."""

from __future__ import annotations

import errno
import os
import ssl
import tempfile
import weakref
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from .errors import ConfigError

_DESCRIPTORS: Final = Path("/proc/self/fd")


class IssuedPair:
    """A client certificate and its key in PEM that a login plugin renews from time to time."""

    def __init__(self, cert: bytes, key: bytes) -> None:
        self.cert = cert
        self.key = key

    def renew(self, cert: bytes, key: bytes) -> None:
        """Replace the pair; connections opened from now on present the new one."""
        self.cert, self.key = cert, key

    def dates(self) -> tuple[datetime, datetime]:
        """Return from when and until when the certificate is valid; ValueError if it cannot be read."""
        # Imported here: the import takes 60 ms and only clients with issued certificates need it.
        from cryptography import x509

        cert = x509.load_pem_x509_certificate(self.cert)
        return cert.not_valid_before_utc, cert.not_valid_after_utc


@dataclass(frozen=True, slots=True)
class TLSConfig:
    """Trusted authorities and client certificate, each as PEM bytes or as a file that may be rewritten."""

    ca: bytes | Path | None = None
    """The trusted authorities; None means the authorities of the system."""
    cert: bytes | Path | None = None
    key: bytes | Path | None = None
    server_name: str = ""
    """The name to request (SNI) and to verify, if it differs from the host."""
    verify: bool = True
    issued: IssuedPair | None = None
    """The certificate and key to present instead of ``cert`` and ``key``."""

    def __repr__(self) -> str:
        """Return the settings. A file is shown as its path, and a PEM text only as its size."""
        parts = {"ca": self.ca, "cert": self.cert, "key": self.key}
        shown = [f"{name}={_shown(part)}" for name, part in parts.items() if part is not None]
        shown += [f"server_name={self.server_name!r}"] if self.server_name else []
        shown += ["issued=True"] if self.issued is not None else []
        return f"{type(self).__name__}({', '.join([*shown, f'verify={self.verify}'])})"

    def ssl_context(self) -> ssl.SSLContext:
        """Build the SSL context; files are read now.

        Raises:
            ConfigError: a certificate or key cannot be read or used, or the settings contradict each other.
        """
        if not self.verify and self.ca is not None:
            raise ConfigError("certificate authority: not allowed when certificates are not verified")
        if self.issued is None and (self.cert is None) != (self.key is None):
            raise ConfigError(
                f"client certificate: its {'key' if self.key is None else 'certificate'} is missing"
            )
        part: str = "certificate authority"
        try:
            # Bundles may contain comments in any language. Some Python versions enforce RFC 5280 strictly, which the
            # authorities of many clusters do not satisfy.
            cadata = _pem(self.ca).decode("ascii", errors="ignore") if self.ca is not None else None
            context = ssl.create_default_context(cadata=cadata)
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            if not self.verify:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            part = "client certificate"
            if self.issued is not None:
                load_chain(context, self.issued.cert, self.issued.key)
            elif self.cert is not None and self.key is not None:
                load_chain(context, _pem(self.cert), _pem(self.key))
        except (ssl.SSLError, OSError, ValueError) as error:
            raise ConfigError(f"{part}: {_reason(error)}") from error
        return context

    def stamp(self) -> tuple[object, ...]:
        """Return a value that changes when one of the files is rewritten."""
        return tuple(_stat(part) for part in (self.ca, self.cert, self.key) if isinstance(part, Path))


def _shown(part: bytes | Path) -> str:
    return repr(str(part)) if isinstance(part, Path) else f"<{len(part)} bytes>"


def _pem(part: bytes | Path) -> bytes:
    return part if isinstance(part, bytes) else part.read_bytes()


class PrivateFile:
    """A text in a file that only this process can read, for functions that accept only file names.

    The file exists as long as this object. On Linux, it is in memory. Where the system has no such files, or forbids
    them, it is a temporary file with the mode 0600.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content
        self._end: weakref.finalize[..., PrivateFile]
        file = _file_in_memory()
        in_memory = file is not None
        if file is not None:
            self.path = str(_DESCRIPTORS / str(file))
            self._end = weakref.finalize(self, os.close, file)
        else:
            file, self.path = tempfile.mkstemp(prefix="certificate-")
            self._end = weakref.finalize(self, Path(self.path).unlink)
        with open(file, "wb", closefd=not in_memory) as out:
            out.write(content)

    def close(self) -> None:
        """Remove the file now."""
        self._end()


def _file_in_memory() -> int | None:
    """Return the descriptor of a new file in memory, or None if there are none."""
    if not hasattr(os, "memfd_create") or not _DESCRIPTORS.is_dir():
        return None
    try:
        return os.memfd_create("certificate", os.MFD_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM):  # an old kernel, or a sandbox
            return None
        raise


def load_chain(context: ssl.SSLContext, cert: bytes, key: bytes) -> None:
    """Load a PEM certificate chain and its key into ``context``.

    The key is not written to disk, except on systems without files in memory; see :class:`PrivateFile`.

    Raises:
        ssl.SSLError: the certificate or the key is not valid PEM, they do not match, or the key is encrypted.
    """

    def refuse() -> str:
        raise ssl.SSLError(1, "the private key is encrypted: use a key without a password")

    file = PrivateFile(cert + b"\n" + key)
    try:
        context.load_cert_chain(file.path, password=refuse)  # without it, OpenSSL would ask on the terminal
    finally:
        file.close()


def _stat(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)
