# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Bad bodies of every kind, on a real port: each is answered, memory does not grow, and the server stays available.

``ADMISSION_BODIES=10000`` sends the full number.
"""

import copy
import io
import json
import os
import random
import sys
from collections import Counter
from typing import Any

import aiohttp
import anyio
import psutil
import pytest
from ctrl_testkit.small import places

pytestmark = pytest.mark.integration
PATH = "/validate-trainer-kubeflow-org-v1alpha1-trainjob"
JSON = "application/json"
LIMIT = 7 * 1024 * 1024
COUNT = int(os.environ.get("ADMISSION_BODIES", "600"))
GROWTH = 24 * 1024 * 1024
REVIEW: dict[str, Any] = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "request": {
        "uid": "u-1",
        "operation": "CREATE",
        "resource": {"group": "trainer.kubeflow.org", "version": "v1alpha1", "resource": "trainjobs"},
        "userInfo": {"username": "me", "groups": ["a"]},
        "object": {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": "job", "namespace": "team"},
            "spec": {
                "runtimeRef": {
                    "apiGroup": "trainer.kubeflow.org",
                    "kind": "ClusterTrainingRuntime",
                    "name": "torch-distributed",
                },
                "trainer": {"numNodes": 2, "env": [{"name": "A", "value": "1"}]},
            },
        },
    },
}
VALID = json.dumps(REVIEW).encode()
JUNK: list[Any] = [None, True, -1, 2**70, 1.5, "", "x" * 300, [], [[]], {}, {"a": {"b": []}}, [1, "a", None]]

Body = tuple[bytes, str, set[int]]
"""The content, its content type, and the accepted statuses of the answer."""


def odd(rng: random.Random) -> bytes:
    """Return a review in which some values are replaced by others."""
    body = copy.deepcopy(REVIEW)
    for _ in range(rng.randint(1, 3)):
        *parents, last = rng.choice(places(body)[1:])
        where: Any = body
        for step in parents:
            where = where[step]
        where[last] = copy.deepcopy(rng.choice(JUNK))
    return json.dumps(body).encode()


def deep(rng: random.Random) -> bytes:
    depth = rng.choice([50, 500, 1_000, 5_000, 100_000])
    left, right = rng.choice([(b'{"a":', b"}"), (b"[", b"]")])
    return VALID.replace(b'"2"', b"1").replace(
        b'{"numNodes"', b'{"x":' + left * depth + b"1" + right * depth + b',"numNodes"'
    )


def sized(size: int) -> bytes:
    padded = VALID.replace(b'"name": "job"', b'"name": "job", "annotations": {"a": "%s"}')
    return padded.replace(b"%s", b"x" * (size - len(padded) + 2))


def twice(rng: random.Random) -> bytes:
    key = rng.choice(
        [b'"operation": "CREATE"', b'"uid": "u-1"', b'"name": "job"', b'"kind": "AdmissionReview"']
    )
    return VALID.replace(key, key + b", " + key.partition(b":")[0] + b': "other"')


def flipped(rng: random.Random) -> bytes:
    body = bytearray(VALID)
    for _ in range(rng.randint(1, 4)):
        body[rng.randrange(len(body))] = rng.choice(b'\xff\xc0\x80\xed\x00{}[]",:0')
    return bytes(body)


def make(rng: random.Random) -> tuple[str, Body]:
    kind = rng.choices(
        [
            "valid",
            "truncated",
            "odd",
            "deep",
            "full",
            "too large",
            "type",
            "utf-8",
            "twice",
            "flipped",
            "noise",
        ],
        [20, 10, 20, 5, 0.5, 0.5, 5, 10, 10, 15, 5],
    )[0]
    match kind:
        case "valid":
            return kind, (VALID, JSON, {200})
        case "truncated":
            return kind, (VALID[: rng.randrange(len(VALID))], JSON, {400})
        case "odd":
            return kind, (odd(rng), JSON, {200, 400})
        case "deep":
            return kind, (deep(rng), JSON, {200, 400, 413})
        case "full":
            return kind, (sized(LIMIT), JSON, {200, 413})
        case "too large":
            return kind, (sized(LIMIT + 1), JSON, {413})
        case "type":
            other = rng.choice(
                ["text/plain", "application/yaml", "application/x-www-form-urlencoded", "", "x"]
            )
            return kind, (VALID, other, {400})
        case "utf-8":
            return kind, (
                VALID.replace(b"team", rng.choice([b"\xff\xfe", b"\xc3", b"\xed\xa0\x80"])),
                JSON,
                {400},
            )
        case "twice":
            return kind, (twice(rng), JSON, {200, 400})
        case "flipped":
            return kind, (flipped(rng), JSON, {200, 400})
    return kind, (rng.randbytes(rng.randint(0, 2000)), JSON, {400})


def proper(status: int, content_type: str, text: bytes) -> bool:
    answer = json.loads(text)
    if content_type != JSON:
        return False
    if status != 200:
        return bool(answer["kind"] == "Status" and answer["code"] == status and answer["message"])
    response = answer["response"]
    return bool(response["uid"] and response["status"]["code"] in (200, 400, 403))


def test_the_sizes_are_what_they_say() -> None:
    assert len(sized(LIMIT)) == LIMIT
    assert json.loads(sized(LIMIT))["request"]["object"]["metadata"]["name"] == "job"


@pytest.mark.timeout(900)
async def test_every_body_is_answered_and_memory_stays_flat(
    server: tuple[psutil.Process, int], capsys: pytest.CaptureFixture[str]
) -> None:
    process, port = server
    memory = process.memory_info
    rng = random.Random(20)
    answers: Counter[tuple[str, int]] = Counter()

    async def send(session: aiohttp.ClientSession, kind: str, body: Body) -> None:
        content, content_type, fine = body
        headers = {"Content-Type": content_type}
        async with session.post(
            f"https://127.0.0.1:{port}{PATH}", data=io.BytesIO(content), headers=headers
        ) as response:
            text = await response.read()
            answers[kind, response.status] += 1
            assert response.status in fine, (kind, response.status, text[:300], content[:300])
            assert proper(response.status, response.headers["Content-Type"], text), (kind, text[:300])

    timeout = aiohttp.ClientTimeout(total=60)
    connector = aiohttp.TCPConnector(ssl=False, limit=8)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        for size in (
            LIMIT,
            LIMIT + 1,
            LIMIT,
            LIMIT + 1,
        ):  # the largest bodies raise the memory once, which is not growth
            await send(session, "warm-up", (sized(size), JSON, {200, 413}))
        warm = 0
        for number in range(0, COUNT, 8):
            if number >= COUNT // 5 and not warm:
                warm = memory().rss
            async with anyio.create_task_group() as tasks:
                for _ in range(min(8, COUNT - number)):
                    tasks.start_soon(send, session, *make(rng))
        grown = memory().rss - warm
        await send(session, "valid", (VALID, JSON, {200}))
    # A client that disconnects in the middle of a body does no harm.
    for _ in range(20):
        stream = await anyio.connect_tcp(
            "127.0.0.1", port, tls=True, tls_standard_compatible=False, ssl_context=_trusting()
        )
        await stream.send(f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n{{".encode())
        await stream.aclose()
    assert process.status() != psutil.STATUS_ZOMBIE
    with capsys.disabled():
        sys.stdout.write(
            f"\n{COUNT} bodies: memory grew by {grown / 2**20:.1f} MiB; {dict(sorted(answers.items()))}\n"
        )
    assert grown <= GROWTH
    assert {kind for kind, _ in answers} >= {"valid", "truncated", "odd", "deep", "type", "utf-8", "twice"}


def _trusting() -> Any:
    import ssl

    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
