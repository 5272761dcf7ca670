# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A webhook server's certificates change while it receives admission requests."""

import asyncio
import ssl
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import msgspec
import pytest
from cryptography import x509

from controller_runtime import metrics, webhook
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.envtest import Authority, KeyPair, eventually

pytestmark = pytest.mark.fault
RATE = 200
PERIOD = 0.3
SWAPS = 20


class Allow(webhook.CustomValidator[ConfigMap]):
    async def validate_create(self, obj: ConfigMap) -> list[str]:
        return []

    async def validate_update(self, old: ConfigMap, new: ConfigMap) -> list[str]:
        return []

    async def validate_delete(self, obj: ConfigMap) -> list[str]:
        return []


class Mount:
    """A certificate's folder, replaced as a whole like a mounted Secret, or file by file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._versions = 0

    def swap_link(self, pair: KeyPair) -> None:
        """Switch the links ``tls.crt`` and ``tls.key`` to another pair in one step."""
        self._versions += 1
        version = self._folder / f"..{self._versions}"
        pair.write(version)
        fresh = self._folder / "..fresh"
        fresh.symlink_to(version.name)
        fresh.replace(self._folder / "..data")
        for name in ("tls.crt", "tls.key"):
            self._link(name)

    async def swap_files(self, pair: KeyPair, between: float) -> None:
        """Replace the certificate, wait, and then replace the key."""
        for number, (name, content) in enumerate((("tls.crt", pair.certificate), ("tls.key", pair.key))):
            await anyio.sleep(between * number)
            fresh = self._folder / f".{name}"
            fresh.write_bytes(content)
            fresh.replace(self._folder / name)

    def _link(self, name: str) -> None:
        path = self._folder / name
        path.unlink(missing_ok=True)
        path.symlink_to(f"..data/{name}")


class Load:
    """Sends ``RATE`` admission requests per second, every second one on a new connection."""

    def __init__(self, url: str, trust: ssl.SSLContext) -> None:
        self._url = url
        self._trust = trust
        self.asked = 0
        self.enough = False
        self.failures: list[str] = []

    async def run(self) -> None:
        """Send requests until ``enough`` is set, and wait for the last answers."""
        kept = aiohttp.TCPConnector(ssl=self._trust)
        fresh = aiohttp.TCPConnector(ssl=self._trust, force_close=True)
        async with (
            aiohttp.ClientSession(connector=kept) as keeping,
            aiohttp.ClientSession(connector=fresh) as closing,
            anyio.create_task_group() as asking,
        ):
            began = anyio.current_time()
            while not self.enough:
                await anyio.sleep_until(began + self.asked / RATE)
                asking.start_soon(self._ask, (keeping, closing)[self.asked % 2])
                self.asked += 1

    async def _ask(self, session: aiohttp.ClientSession) -> None:
        uid = str(uuid.uuid4())
        request = {
            "uid": uid,
            "operation": "CREATE",
            "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}},
        }
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        try:
            async with session.post(
                self._url,
                data=msgspec.json.encode(review),
                headers={"Content-Type": "application/json"},
                timeout=aiohttp.ClientTimeout(total=10),
            ) as answer:
                response = msgspec.json.decode(await answer.read())["response"]
            if not (response["allowed"] and response["uid"] == uid):
                self.failures.append(str(response))
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError) as error:
            self.failures.append(repr(error))


async def test_no_admission_fails_while_certificates_change_and_a_bad_pair_is_refused(
    tmp_path: Path, figure: Any
) -> None:
    authority = Authority.create("fault")

    def issue() -> KeyPair:
        return authority.server("webhook", ["127.0.0.1"])

    def errors() -> float:
        return metrics.REGISTRY.get_sample_value("certwatcher_read_certificate_errors_total") or 0

    def serial(pair: KeyPair) -> int:
        return x509.load_pem_x509_certificate(pair.certificate).serial_number

    trust = ssl.create_default_context(cadata=authority.certificate.decode())
    mount = Mount(tmp_path)
    mount.swap_link(issue())
    server = webhook.Server("127.0.0.1", 0, tmp_path, cert_period=PERIOD)
    server.register("/validate", webhook.ValidatorHandler(ConfigMap, Allow()))

    def serves(pair: KeyPair) -> Callable[[], Any]:
        async def check() -> bool:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trust)
            del reader
            der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            writer.close()
            await writer.wait_closed()
            return x509.load_der_x509_certificate(der).serial_number == serial(pair)

        return check

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.start)
        await server.ready()
        load = Load(f"https://127.0.0.1:{server.port}/validate", trust)
        began = anyio.current_time()
        async with anyio.create_task_group() as loading:
            loading.start_soon(load.run)
            for number in range(SWAPS):
                good = issue()
                if number % 2:
                    await mount.swap_files(good, between=1.5 * PERIOD)
                else:
                    mount.swap_link(good)
                await eventually(serves(good), timeout=20, reason="the new certificate is served")

            refused = errors()
            mount.swap_link(KeyPair(issue().certificate, issue().key))
            swapped = anyio.current_time()
            await eventually(
                lambda: errors() > refused,
                timeout=5,
                reason="the bad pair is counted",
            )
            figure("mismatched pair: counted after", anyio.current_time() - swapped, at_most=1)
            await anyio.sleep(4 * PERIOD)
            assert await serves(good)(), "the matching pair is still served"
            lasted = anyio.current_time() - began
            load.enough = True
        tasks.cancel_scope.cancel()
    assert load.asked >= 0.95 * RATE * lasted
    figure(
        f"{SWAPS} certificate swaps and a bad pair, {load.asked} admissions in {lasted:.0f} s: failed",
        len(load.failures),
        at_most=0,
        unit="admissions",
    )
