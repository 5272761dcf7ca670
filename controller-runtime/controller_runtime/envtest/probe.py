# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Probe a component's readiness with one GET request; only the status code matters."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import anyio


@dataclass(frozen=True)
class Probe:
    """A health endpoint: ``authority`` verifies its TLS certificate, ``client`` is our client certificate."""

    url: str
    authority: Path | None = None
    client: tuple[Path, Path] | None = None

    def tls(self) -> ssl.SSLContext | None:
        """Return the endpoint's TLS settings, or None for plain HTTP."""
        if self.authority is None:
            return None
        context = ssl.create_default_context(cafile=str(self.authority))
        if self.client is not None:
            context.load_cert_chain(*map(str, self.client))
        return context


async def answer(probe: Probe, tls: ssl.SSLContext | None, *, timeout: float = 5) -> str:
    """Return the status code of the response (``200``), or a short reason why there is no response."""
    url = urlsplit(probe.url)
    try:
        with anyio.fail_after(timeout):
            reader, writer = await asyncio.open_connection(url.hostname, url.port, ssl=tls)
            try:
                writer.write(f"GET {url.path or '/'} HTTP/1.0\r\nHost: {url.netloc}\r\n\r\n".encode())
                await writer.drain()
                words = (await reader.readline()).split()
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except TimeoutError:
        return "no answer"
    except ConnectionRefusedError:
        return "connection refused"
    except OSError as error:
        return error.strerror or str(error) or type(error).__name__
    except ValueError:  # another program listens there: asyncio reads lines of at most 64 KiB
        return "no status line"
    return words[1].decode(errors="replace") if len(words) > 1 else "no status line"
