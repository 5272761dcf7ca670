# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The health check of gRPC (``grpc.health.v1.Health/Check``): one unary call over HTTP/2, without TLS and compression.

Only the frames that such a call needs are understood. Headers of the answer are not decoded: an answer without a
message is an error, with any status.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY = 0, 1, 3, 4, 6, 7
_END_STREAM, _ACK, _END_HEADERS, _PADDED = 1, 1, 4, 8
_STREAM: Final = 1
_LONGEST: Final = 1 << 20
_LONGEST_MESSAGE: Final = 64
"""Bytes of an answer that are kept; its state is in the first seven."""
_SERVING: Final = 1
_STATES: Final = {0: "UNKNOWN", 1: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}


class _Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes

    def encoded(self) -> bytes:
        return struct.pack(">I", len(self.payload))[1:] + struct.pack(">BBI", *self[:3]) + self.payload


async def check(host: str, port: int, service: str) -> tuple[bool, str]:
    """Return True if the server answers that ``service`` serves, and otherwise the reason.

    Raises:
        OSError: the server cannot be reached.
        ValueError: the answer is not HTTP/2.
    """
    async with await anyio.connect_tcp(host, port) as stream:
        await stream.send(_request(f"{host}:{port}", service))
        message = b""
        try:
            async for frame in _frames(BufferedByteReceiveStream(stream)):
                if frame.kind in (_SETTINGS, _PING) and not frame.flags & _ACK:
                    payload = frame.payload if frame.kind == _PING else b""
                    await stream.send(_Frame(frame.kind, _ACK, 0, payload).encoded())
                elif frame.kind in (_RESET, _GOAWAY):
                    return False, "the server refused the call"
                elif frame.kind == _DATA:
                    message = (message + _unpadded(frame))[:_LONGEST_MESSAGE]
                if frame.kind in (_DATA, _HEADERS) and frame.flags & _END_STREAM:
                    break
        except (anyio.EndOfStream, anyio.IncompleteRead):
            return False, "the server closed the connection"
        return _judged(message)


def _request(authority: str, service: str) -> bytes:
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/grpc.health.v1.Health/Check",
        ":authority": authority,
        "content-type": "application/grpc",
        "user-agent": "kube-probe",
        "te": "trailers",
    }
    # Literals without indexing and without Huffman coding: no table is kept.
    block = b"".join(
        b"\0" + _sized(name.encode()) + _sized(value.encode()) for name, value in headers.items()
    )
    body = b"\x0a" + _sized(service.encode()) if service else b""
    message = b"\0" + struct.pack(">I", len(body)) + body
    frames = (
        _Frame(_SETTINGS, 0, 0, b""),
        _Frame(_HEADERS, _END_HEADERS, _STREAM, block),
        _Frame(_DATA, _END_STREAM, _STREAM, message),
    )
    return _PREFACE + b"".join(frame.encoded() for frame in frames)


def _sized(text: bytes) -> bytes:
    """Return a text after its length, which one byte holds in HPACK and in protobuf."""
    if len(text) > 126:
        raise ValueError("the name of the service or host is too long")
    return bytes([len(text)]) + text


async def _frames(stream: BufferedByteReceiveStream) -> AsyncIterator[_Frame]:
    while True:
        head = await stream.receive_exactly(9)
        length = int.from_bytes(head[:3], "big")
        if length > _LONGEST or head[:5] == b"HTTP/":
            raise ValueError("the answer is not HTTP/2")
        kind, flags, number = struct.unpack(">BBI", head[3:])
        yield _Frame(kind, flags, number & 0x7FFFFFFF, await stream.receive_exactly(length))


def _unpadded(frame: _Frame) -> bytes:
    padded = frame.flags & _PADDED and frame.payload
    return frame.payload[1 : -frame.payload[0] or None] if padded else frame.payload


def _judged(message: bytes) -> tuple[bool, str]:
    """Return the result of an answer: a length-prefixed message whose first field is the state."""
    if len(message) < 5:
        return False, "the server does not implement the gRPC health protocol, or does not know the service"
    body = message[5:]
    state = body[1] if body[:1] == b"\x08" and len(body) > 1 else 0
    return state == _SERVING, f"the service is {_STATES.get(state, state)}"
