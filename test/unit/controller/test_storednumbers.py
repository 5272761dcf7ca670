# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Stored strings in numProcPerNode are rewritten once, slowly, and without disturbing other writers."""

from typing import Any

import anyio
import anyio.lowlevel
import pytest
from controller_runtime.client import interceptor
from controller_runtime.fake import FakeClient
from controller_runtime.machinery.errors import ConflictError, ForbiddenError, StatusError
from controller_runtime.rest import TransportError

from pkg.apis.trainer.v1alpha1 import Trainer, TrainJob
from pkg.constants import trainer as constants
from pkg.controller.storednumbers import FIRST_RETRY, PER_SECOND, TRIES, StoredNumbers
from pkg.util.testing import make_train_job

WORD = constants.NUM_PROC_PER_NODE_ANNOTATION


class Informers:
    """Knows the keys of a client's TrainJobs."""

    def __init__(self, client: FakeClient) -> None:
        self._client = client
        self.names: list[Any] = []

    async def get_informer(self, _kind: object) -> "Informers":
        self.names = [job.key for job in await self._client.list(TrainJob)]
        return self

    async def wait_for_sync(self) -> None:
        await anyio.lowlevel.checkpoint()

    def keys(self) -> list[Any]:
        return self.names


def job(name: str, value: Any) -> TrainJob:
    return make_train_job("ns", name, trainer=Trainer(num_proc_per_node=value))


async def rewrite(client: FakeClient, writer: Any = None) -> None:
    informers: Any = Informers(client)
    await StoredNumbers(writer or client, client, informers).start()


async def values(client: FakeClient) -> dict[str, tuple[Any, str | None]]:
    return {
        each.name: (
            each.spec.trainer.num_proc_per_node if each.spec.trainer else None,
            each.annotations.get(WORD),
        )
        for each in await client.list(TrainJob)
    }


async def test_words_move_to_the_annotation_and_numbers_become_numbers() -> None:
    client = FakeClient(job("word", "auto"), job("text", "4"), job("number", 8), make_train_job("ns", "none"))
    await rewrite(client)
    assert await values(client) == {
        "word": (None, "auto"),
        "text": (4, None),
        "number": (8, None),
        "none": (None, None),
    }
    writes = [(call.verb, call.key.name) for call in client.calls if call.verb not in ("get", "list")]
    assert sorted(writes) == [("patch", "text"), ("patch", "word")]


async def test_many_are_rewritten_at_a_bounded_rate() -> None:
    client = FakeClient(*(job(f"job-{number}", "gpu") for number in range(11)))
    began = anyio.current_time()
    await rewrite(client)
    assert anyio.current_time() - began == pytest.approx(10 / PER_SECOND)


async def test_a_train_job_that_changes_meanwhile_is_read_again_and_left_for_later_after_some_tries() -> None:
    client, conflicts = FakeClient(job("a", "auto"), job("b", "auto")), {"a": TRIES - 1, "b": TRIES}
    began, tried = anyio.current_time(), []

    async def patch(inner: Any, obj: TrainJob, change: Any, **options: Any) -> Any:
        if anyio.current_time() - began < FIRST_RETRY:
            tried.append(obj.name)
        if conflicts[obj.name] > 0:
            conflicts[obj.name] -= 1
            raise ConflictError("changed", code=409, reason="Conflict")
        return await inner.patch(obj, change, **options)

    await rewrite(client, interceptor.wrap(client, interceptor.Funcs(patch=patch)))
    assert await values(client) == {"a": (None, "auto"), "b": (None, "auto")}
    assert tried == ["a"] * TRIES + ["b"] * TRIES
    assert anyio.current_time() - began >= FIRST_RETRY


@pytest.mark.parametrize(
    "error",
    [
        StatusError("failed calling webhook", code=500, reason="InternalError"),
        TransportError("the connection was refused", host="https://fake"),
    ],
    ids=["no webhook yet", "no server"],
)
async def test_an_outage_at_the_start_delays_the_rewriting(error: Exception) -> None:
    client = FakeClient(job("a", "auto"), job("b", "4"))
    began = anyio.current_time()

    async def patch(inner: Any, obj: TrainJob, change: Any, **options: Any) -> Any:
        if anyio.current_time() - began < 60:
            raise error
        return await inner.patch(obj, change, **options)

    await rewrite(client, interceptor.wrap(client, interceptor.Funcs(patch=patch)))
    assert await values(client) == {"a": (None, "auto"), "b": (4, None)}


async def test_a_train_job_that_the_server_does_not_accept_is_not_tried_again() -> None:
    client = FakeClient(job("a", "auto"), job("b", "4"))
    tries: list[str] = []

    async def patch(inner: Any, obj: TrainJob, change: Any, **options: Any) -> Any:
        tries.append(obj.name)
        if obj.name == "a":
            raise ForbiddenError("a policy denied the request", code=403, reason="Forbidden")
        return await inner.patch(obj, change, **options)

    await rewrite(client, interceptor.wrap(client, interceptor.Funcs(patch=patch)))
    assert await values(client) == {"a": ("auto", None), "b": (4, None)}
    assert sorted(tries) == ["a", "b"]


async def test_a_number_beyond_32_bits_stays_and_the_others_are_rewritten() -> None:
    client = FakeClient(job("a", "9999999999"), job("b", "cpu"))
    await rewrite(client)
    assert await values(client) == {"a": ("9999999999", None), "b": (None, "cpu")}
