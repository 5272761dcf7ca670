# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import errno
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest

from controller_runtime import metrics
from controller_runtime.webhook import CertificateError, CertWatcher, SelfSigned


def write(folder: Path, cert: bytes, key: bytes) -> tuple[Path, Path]:
    paths = folder / "tls.crt", folder / "tls.key"
    for path, content in zip(paths, (cert, key), strict=True):
        path.write_bytes(content)
    return paths


def rsa_pair(name: str) -> tuple[bytes, bytes]:
    """Return a certificate with a key of the type that cert-manager and Go's cert-controller use."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import rsa

    from controller_runtime.serving import certificates

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    subject, now = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]), datetime.now(UTC)
    unsigned = certificates.builder(subject, subject, key.public_key(), now, now + timedelta(days=1))
    made = unsigned.sign(key, hashes.SHA256())
    return certificates.certificate_pem(made), certificates.private_pem(key)


def connected(context: ssl.SSLContext) -> ssl.SSLObject:
    """Return the client's side of a connection to a server with the context."""
    seen = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    seen.check_hostname, seen.verify_mode = False, ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = seen.wrap_bio(to_client, to_server)
    server = context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    with suppress(ssl.SSLWantReadError):
        client.read()  # which processes what the server sends after the handshake
    return client


def subject(context: ssl.SSLContext) -> str:
    """Return the subject of the certificate that a server with the context shows to clients."""
    from cryptography import x509

    der = connected(context).getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der).subject.rfc4514_string()


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    return write(tmp_path, *SelfSigned("one").pair())


@asynccontextmanager
async def watched(files: tuple[Path, Path]) -> AsyncIterator[CertWatcher]:
    """Run a watcher of the two files and yield it."""
    watcher = CertWatcher(*files)
    assert watcher.context() is watcher.context()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watcher.start)
        yield watcher
        tasks.cancel_scope.cancel()


async def test_a_replaced_pair_is_served_from_the_next_look_on(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    async with watched(files) as watcher:
        write(tmp_path, *SelfSigned("two").pair())
        await anyio.sleep(9)
        assert subject(watcher.context()) == "CN=one"
        await anyio.sleep(2)
        assert subject(watcher.context()) == "CN=two"


async def test_a_process_without_free_file_descriptors_keeps_the_pair_and_reads_the_next_later(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(name: str, flags: int = 0) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    async with watched(files) as watcher:
        with monkeypatch.context() as patched:
            patched.setattr(os, "memfd_create", exhausted)
            write(tmp_path, *SelfSigned("two").pair())
            await anyio.sleep(11)
            assert subject(watcher.context()) == "CN=one"
        await anyio.sleep(10)
        assert subject(watcher.context()) == "CN=two"


async def test_a_half_replaced_pair_leaves_the_old_one_until_it_is_whole(
    files: tuple[Path, Path],
) -> None:
    cert, key = SelfSigned("two").pair()
    async with watched(files) as watcher:
        files[0].write_bytes(cert)
        await anyio.sleep(11)
        assert subject(watcher.context()) == "CN=one"
        files[1].write_bytes(key)
        await anyio.sleep(10)
        assert subject(watcher.context()) == "CN=two"


async def test_a_pair_with_another_type_of_key_replaces_the_former_one(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    async with watched(files) as watcher:
        for name, pair in (("CN=rsa", rsa_pair("rsa")), ("CN=two", SelfSigned("two").pair())):
            write(tmp_path, *pair)
            await anyio.sleep(11)
            assert subject(watcher.context()) == name


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match=r"tls\.crt: No such file or directory$"):
        CertWatcher(tmp_path / "tls.crt", tmp_path / "tls.key").context()


def test_a_key_of_another_certificate_is_refused(files: tuple[Path, Path]) -> None:
    files[1].write_bytes(SelfSigned("two").pair()[1])
    with pytest.raises(CertificateError, match=r"tls\.key"):
        CertWatcher(*files).context()


def test_old_tls_is_refused() -> None:
    assert SelfSigned().context().minimum_version == ssl.TLSVersion.TLSv1_2


def test_clients_get_no_tickets_of_sessions_that_no_api_server_resumes() -> None:
    session = connected(SelfSigned().context()).session
    assert session is not None
    assert not session.has_ticket


def test_every_read_is_counted_and_every_read_that_failed(files: tuple[Path, Path]) -> None:
    def counted() -> list[float]:
        names = ("certwatcher_read_certificate_total", "certwatcher_read_certificate_errors_total")
        return [metrics.REGISTRY.get_sample_value(name) or 0 for name in names]

    watcher = CertWatcher(*files)
    before = counted()
    assert watcher.reload()
    assert not watcher.reload()
    files[1].unlink()
    with pytest.raises(CertificateError):
        watcher.reload()
    assert [now - then for now, then in zip(counted(), before, strict=True)] == [3, 1]
