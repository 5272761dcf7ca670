# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Post large reviews of many shapes at a steady rate. Usage: ``flood.py URL CA RATE SECONDS``.

It prints one JSON object: how many reviews were answered with each HTTP status, 0 for a broken connection.
"""

import asyncio
import collections
import io
import itertools
import json
import ssl
import sys
from collections.abc import Callable
from typing import Any

import aiohttp

SIZE = 6_600_000
"""The approximate size of a review in bytes."""


def _deep() -> Any:
    return _Raw('{"a":' * (SIZE // 12) + "1" + "}" * (SIZE // 12))


class _Raw(str):
    """JSON text that is put into the body as it is: it is nested too deeply for an encoder."""

    __slots__ = ()


SHAPES: dict[str, Callable[[], Any]] = {
    "empty objects": lambda: [{}] * (SIZE // 3),
    "empty lists": lambda: [[]] * (SIZE // 3),
    "wide map": lambda: {f"{number:07}": {} for number in range(SIZE // 14)},
    "strings": lambda: ["ab"] * (SIZE // 5),
    "numbers": lambda: [1] * (SIZE // 2),
    "long keys": lambda: {f"{number:02}" + "k" * 100_000: {} for number in range(SIZE // 100_000)},
    "long string": lambda: "s" * SIZE,
    "deep": _deep,
    "small objects": lambda: [{"name": "a", "value": "b"}] * (SIZE // 25),
    "terms": lambda: [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}] * (SIZE // 55),
}


def review(shape: Any) -> bytes:
    """Return the review of a TrainJob whose affinity has that shape."""
    text = str(shape) if isinstance(shape, _Raw) else json.dumps(shape, separators=(",", ":"))
    job = (
        '{"apiVersion":"trainer.kubeflow.org/v1alpha1","kind":"TrainJob",'
        '"metadata":{"name":"wide","namespace":"default"},"spec":{"runtimeRef":{"name":"none"},'
        '"podTemplateOverrides":[{"targetJobs":[{"name":"node"}],"spec":{"affinity":{"nodeAffinity":'
        '{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":' + text + "}}}}}]}}"
    )
    return (
        '{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE",'
        '"namespace":"default","name":"wide","object":' + job + "}}"
    ).encode()


async def main(url: str, authority: str, rate: float, seconds: float) -> None:
    """Post reviews for ``seconds``, without waiting for the answers to earlier ones."""
    bodies = [review(shape()) for shape in SHAPES.values()]
    answers: collections.Counter[str] = collections.Counter()
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=authority), limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(30)) as session:

        async def post(body: bytes) -> None:
            try:
                headers = {"Content-Type": "application/json"}
                async with session.post(url, data=io.BytesIO(body), headers=headers) as answer:
                    await answer.read()
                    answers[str(answer.status)] += 1
            except (aiohttp.ClientError, OSError, TimeoutError):
                answers["0"] += 1

        sys.stdout.write("ready\n")
        sys.stdout.flush()
        async with asyncio.timeout(seconds + 60), asyncio.TaskGroup() as tasks:
            for body in itertools.islice(itertools.cycle(bodies), int(rate * seconds)):
                tasks.create_task(post(body))
                await asyncio.sleep(1 / rate)
    sys.stdout.write(json.dumps(answers) + "\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])))
