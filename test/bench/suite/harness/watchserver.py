# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A process that answers every watch with the same stream, as fast as it is read; it prints its port first.

Its arguments are the numbers of objects and of events. The first events add each object, the others change objects.
"""

from __future__ import annotations

import json
import sys
from http import HTTPStatus
from typing import Final

import anyio
import anyio.abc
from ctrl_testkit import sample_pods as pods

_HEAD: Final = f"HTTP/1.1 {HTTPStatus.OK.value} OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
_FRAMES: Final = 4
"""Lines in one chunk, as a busy API server writes them."""


def stream(objects: int, events: int) -> bytes:
    """Return the response without its last chunk: the bookmark of an empty list, and then all events."""
    end = {"metadata": {"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}}}
    lines = [json.dumps({"type": "BOOKMARK", "object": end}).encode()]
    for number in range(events):
        version, which = divmod(number, objects)
        lines.append(pods.line(which, version=version + 1, event="MODIFIED" if version else "ADDED"))
    written = [_HEAD.encode()]
    for start in range(0, len(lines), _FRAMES):
        frame = b"\n".join(lines[start : start + _FRAMES]) + b"\n"
        written.append(b"%x\r\n%b\r\n" % (len(frame), frame))
    return b"".join(written)


async def main(objects: int, events: int) -> None:
    """Serve until killed."""
    answer = stream(objects, events)

    async def serve(connection: anyio.abc.SocketStream) -> None:
        async with connection:
            try:
                await connection.receive()
                await connection.send(answer)
                await anyio.sleep_forever()
            except (anyio.BrokenResourceError, anyio.EndOfStream):
                return

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    sys.stdout.write(f"{listener.extra(anyio.abc.SocketAttribute.local_port)}\n")
    sys.stdout.flush()
    await listener.serve(serve)


if __name__ == "__main__":
    anyio.run(main, int(sys.argv[1]), int(sys.argv[2]))
