# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Bodies that decode to a thousand times their size, end early or are broken, on a real port.

The cost of the first two is measured in processor time and memory, which do not depend on the load of the machine.
"""

import contextlib
import http.client
import json
import socket
import ssl
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.integration
PATH = "/validate-trainer-kubeflow-org-v1alpha1-trainjob"
JSON = "application/json"
MIB = 1024 * 1024
LIMIT = 7 * MIB
SIZE = int(6.6 * MIB)
REVIEWS = 20
CPU_SECONDS = 0.1
"""The limit of the processor time of one refused review; without limits it takes more than ten seconds."""
GROWTH = 96 * MIB

SHAPES: dict[str, tuple[str, Callable[[str], str]]] = {
    "empty objects": ("{},", lambda text: _spec(f'{{"podTemplateOverrides":[{text}{{}}]}}')),
    "empty lists": ("[],", lambda text: _spec(f'{{"x":[{text}[]]}}')),
    "short strings": ('"a",', lambda text: _spec(f'{{"trainer":{{"command":[{text}"a"]}}}}')),
    "numbers": ("1,", lambda text: _spec(f'{{"x":[{text}1]}}')),
    "user": ('"a",', lambda text: _review(object_="{}", user=f'{{"groups":[{text}"a"]}}')),
    "envelope": ("{},", lambda text: f"[{text}{{}}]"),
}


def _review(object_: str, user: str = '{"username":"me"}') -> str:
    return (
        '{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u-1","operation":"CREATE",'
        f'"userInfo":{user},"object":{object_}}}}}'
    )


def _spec(spec: str) -> str:
    meta = '"apiVersion":"trainer.kubeflow.org/v1alpha1","kind":"TrainJob","metadata":{"name":"a"}'
    return _review(f'{{{meta},"spec":{spec}}}')


def wide(shape: str, size: int) -> bytes:
    piece, within = SHAPES[shape]
    return within(piece * (size // len(piece))).encode()


VALID = _spec(
    '{"runtimeRef":{"apiGroup":"trainer.kubeflow.org","kind":"ClusterTrainingRuntime","name":"torch-distributed"}}'
).encode()


BROKEN: dict[str, tuple[bytes, str, int]] = {
    "truncated": (VALID[:-1], JSON, 400),
    "utf-8": (VALID.replace(b"torch", b"\xed\xa0\x80"), JSON, 400),
    "type": (VALID, "application/yaml", 400),
    "no type": (VALID, "", 400),
    "a key twice": (VALID.replace(b'"uid":"u-1"', b'"uid":"u-1","uid":"u-2"'), JSON, 200),
    "deep": (_spec('{"x":' + "[" * 100_000 + "]" * 100_000 + "}").encode(), JSON, 400),
    "largest": (VALID.ljust(LIMIT), JSON, 200),
    "too large": (VALID.ljust(LIMIT + 1), JSON, 413),
}
"""The content, its type, and the status of the answer."""


def cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def ask(port: int, body: bytes, content_type: str = JSON) -> tuple[int, Any]:
    with contextlib.closing(
        http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=trusting())
    ) as connection:
        connection.request("POST", PATH, body, {"Content-Type": content_type})
        response = connection.getresponse()
        assert response.getheader("Content-Type") == JSON
        return response.status, json.loads(response.read())


def is_allowed(port: int) -> bool:
    return bool(ask(port, VALID)[1]["response"]["allowed"])


@pytest.mark.parametrize("size", [SIZE, int(1.3 * MIB)], ids=["6.6 MiB", "1.3 MiB"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_wide_body_is_refused_at_the_cost_of_its_bytes(
    server: tuple[psutil.Process, int], shape: str, size: int, capsys: pytest.CaptureFixture[str]
) -> None:
    process, port = server
    body = wide(shape, size)
    for _ in range(3):
        assert is_allowed(port)
        ask(port, body)
    memory, began = process.memory_info().rss, cpu(process)
    refused: set[tuple[int, int]] = set()
    for _ in range(REVIEWS):
        status, answer = ask(port, body)
        refused.add((status, answer["response"]["status"]["code"] if status == 200 else 0))
    took, grown = (cpu(process) - began) / REVIEWS, process.memory_info().rss - memory
    assert is_allowed(port)
    with capsys.disabled():
        sys.stdout.write(
            f"\n{shape}, {len(body) / MIB:.1f} MiB: {took * 1e3:.0f} ms of CPU a review, memory {memory / MIB:.0f}"
            f" + {grown / MIB:.1f} MiB, answers {refused}\n"
        )
    assert refused <= {(413, 0), (200, 403), (400, 0)}
    assert took <= CPU_SECONDS
    assert grown <= GROWTH


def test_a_broken_body_is_answered_with_a_status_of_its_own(server: tuple[psutil.Process, int]) -> None:
    _, port = server
    for kind, (body, content_type, wanted) in BROKEN.items():
        status, answer = ask(port, body, content_type)
        assert status == wanted, (kind, answer)
        assert status == 200 or (answer["kind"], answer["code"]) == ("Status", status), (kind, answer)
        assert is_allowed(port), kind


def test_bodies_that_are_broken_off_or_rest_leave_no_memory_behind(
    server: tuple[psutil.Process, int], capsys: pytest.CaptureFixture[str]
) -> None:
    process, port = server
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {7 * MIB}\r\n\r\n".encode()
    assert is_allowed(port)
    memory = process.memory_info().rss
    streams: list[ssl.SSLSocket] = []

    def begin(_: int) -> None:
        stream = trusting().wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=60))
        stream.settimeout(5)
        streams.append(stream)
        with contextlib.suppress(OSError):  # throttled, or closed to make room
            stream.sendall(head + b"x" * (6 * MIB))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(begin, range(40)))
    most = process.memory_info().rss
    assert is_allowed(port)
    for stream in streams:
        stream.close()
    assert is_allowed(port)
    left = process.memory_info().rss
    with capsys.disabled():
        sys.stdout.write(
            f"\n40 bodies of 6 MiB: {memory / MIB:.0f} MiB before, {most / MIB:.0f} with them, {left / MIB:.0f} after\n"
        )
    assert most - memory <= GROWTH
    assert left - memory <= GROWTH


def test_the_bodies_are_what_they_say() -> None:
    for shape in SHAPES:
        json.loads(wide(shape, 1000))
