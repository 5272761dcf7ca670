# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A client certificate is loaded from memory on every system."""

import errno
import os
import ssl
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from controller_runtime import rest
from controller_runtime.envtest import Authority


def _missing(patched: pytest.MonkeyPatch) -> None:
    patched.delattr(os, "memfd_create")


def _failing(number: int) -> Callable[[pytest.MonkeyPatch], None]:
    def fail(name: str, flags: int = 0) -> int:
        raise OSError(number, os.strerror(number))

    return lambda patched: patched.setattr(os, "memfd_create", fail)


@pytest.mark.parametrize(
    "without",
    [
        pytest.param(_missing, id="another system"),
        pytest.param(_failing(errno.ENOSYS), id="an old kernel"),
        pytest.param(_failing(errno.EPERM), id="a sandbox"),
    ],
)
def test_where_no_files_are_in_memory_a_private_file_has_the_key_only_while_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without: Callable[[pytest.MonkeyPatch], None]
) -> None:
    modes: list[int] = []

    class Context(ssl.SSLContext):
        def load_cert_chain(self, certfile: str, *_: object, **__: object) -> None:  # type: ignore[override]  # one use
            modes.append(stat.S_IMODE(Path(certfile).stat().st_mode))
            super().load_cert_chain(certfile)

    without(monkeypatch)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    pair = Authority.create("ca").client("me")
    rest.load_chain(Context(ssl.PROTOCOL_TLS_CLIENT), pair.certificate, pair.key)
    assert modes == [0o600]
    assert [*tmp_path.iterdir()] == []


def test_an_encrypted_key_is_an_error_instead_of_a_question_on_the_terminal() -> None:
    pair = Authority.create("ca").client("me")
    plain = serialization.load_pem_private_key(pair.key, None)
    locked = plain.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    problem = r"^client certificate: the private key is encrypted: use a key without a password"
    with pytest.raises(rest.ConfigError, match=problem):
        rest.TLSConfig(cert=pair.certificate, key=locked).ssl_context()
