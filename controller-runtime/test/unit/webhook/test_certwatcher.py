# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import errno
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from controller_runtime.webhook import CertificateError, CertWatcher, SelfSigned


def write(folder: Path, cert: bytes, key: bytes) -> tuple[Path, Path]:
    paths = folder / "tls.crt", folder / "tls.key"
    for path, content in zip(paths, (cert, key), strict=True):
        path.write_bytes(content)
    return paths


def subject(context: ssl.SSLContext) -> str:
    """Return the name on the certificate that a client of context sees, by a handshake in memory."""
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
    from cryptography import x509

    der = client.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der).subject.rfc4514_string()


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    return write(tmp_path, *SelfSigned("one").pair())


@asynccontextmanager
async def watched(files: tuple[Path, Path]) -> AsyncIterator[ssl.SSLContext]:
    """Keep a context in step with the files."""
    watcher = CertWatcher(*files)
    context = watcher.context()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watcher.start)
        yield context
        tasks.cancel_scope.cancel()


async def test_a_replaced_pair_is_served_from_the_next_look_on_by_the_same_context(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    async with watched(files) as context:
        write(tmp_path, *SelfSigned("two").pair())
        await anyio.sleep(9)
        assert subject(context) == "CN=one"
        await anyio.sleep(2)
        assert subject(context) == "CN=two"


async def test_a_process_without_free_file_descriptors_keeps_the_pair_and_reads_the_next_later(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(name: str, flags: int = 0) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    async with watched(files) as context:
        with monkeypatch.context() as patched:
            patched.setattr(os, "memfd_create", exhausted)
            write(tmp_path, *SelfSigned("two").pair())
            await anyio.sleep(11)
            assert subject(context) == "CN=one"
        await anyio.sleep(10)
        assert subject(context) == "CN=two"


async def test_a_half_replaced_pair_leaves_the_old_one_until_it_is_whole(
    files: tuple[Path, Path],
) -> None:
    cert, key = SelfSigned("two").pair()
    async with watched(files) as context:
        files[0].write_bytes(cert)
        await anyio.sleep(11)
        assert subject(context) == "CN=one"
        files[1].write_bytes(key)
        await anyio.sleep(10)
        assert subject(context) == "CN=two"


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match=r"tls\.crt: No such file or directory$"):
        CertWatcher(tmp_path / "tls.crt", tmp_path / "tls.key").context()


def test_a_key_of_another_certificate_is_refused(files: tuple[Path, Path]) -> None:
    files[1].write_bytes(SelfSigned("two").pair()[1])
    with pytest.raises(CertificateError, match=r"tls\.key"):
        CertWatcher(*files).context()


def test_old_tls_is_refused() -> None:
    assert SelfSigned().context().minimum_version == ssl.TLSVersion.TLSv1_2
