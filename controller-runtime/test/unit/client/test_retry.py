# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A change is repeated while other writers are faster."""

import anyio
import pytest

from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.client import retry_on_conflict
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import errors

CONFLICT = errors.ConflictError("changed", code=409, reason="Conflict")


class Change:
    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.calls = 0

    async def __call__(self) -> int:
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        return self.calls


async def test_a_conflict_is_retried_after_a_moment() -> None:
    began = anyio.current_time()
    assert await retry_on_conflict(Change(CONFLICT, CONFLICT)) == 3
    assert 0.02 <= anyio.current_time() - began <= 0.022


async def test_the_fifth_conflict_is_raised() -> None:
    change = Change(*10 * [CONFLICT])
    with pytest.raises(errors.ConflictError):
        await retry_on_conflict(change)
    assert change.calls == 5


async def test_the_delays_grow_by_the_factor() -> None:
    began = anyio.current_time()
    await retry_on_conflict(Change(*3 * [CONFLICT]), attempts=4, delay=0.01, factor=5.0, jitter=0.0)
    assert anyio.current_time() - began == pytest.approx(0.01 + 0.05 + 0.25)


@pytest.mark.parametrize(
    "error",
    [errors.AlreadyExistsError("exists", code=409), errors.ServerError("broken"), ValueError("wrong")],
    ids=lambda error: type(error).__name__,
)
async def test_other_errors_are_raised_at_once(error: Exception) -> None:
    change = Change(error)
    with pytest.raises(type(error)):
        await retry_on_conflict(change)
    assert change.calls == 1


async def test_no_attempt_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="at least one"):
        await retry_on_conflict(Change(), attempts=0)


async def test_two_writers_of_one_object_both_succeed() -> None:
    client = FakeClient(ConfigMap(metadata=ObjectMeta(name="c", namespace="n"), data={}))

    async def add(key: str) -> None:
        async def change() -> ConfigMap:
            found = await client.get(ConfigMap, ("n", "c"))
            await anyio.sleep(0.001)
            found.data = {**(found.data or {}), key: "1"}
            return await client.update(found)

        await retry_on_conflict(change)

    async with anyio.create_task_group() as tasks:
        for key in "ab":
            tasks.start_soon(add, key)
    assert (await client.get(ConfigMap, ("n", "c"))).data == {"a": "1", "b": "1"}
