# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Garbage collection resumes after the start, whether it succeeded or failed."""

import contextlib
import gc
from collections.abc import Iterator

import anyio
import pytest

from controller_runtime import lean


@pytest.fixture(autouse=True)
def no_collections() -> Iterator[None]:
    gc.disable()
    yield
    gc.unfreeze()
    gc.enable()


async def test_collections_begin_a_second_after_the_caches_are_full() -> None:
    full = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lean.Collector(full.wait).start)
        await anyio.sleep(10)
        full.set()
        await anyio.sleep(0.5)
        assert not gc.isenabled()
        await anyio.sleep(1)
        assert gc.isenabled()


async def test_collections_begin_in_any_case() -> None:
    began = anyio.current_time()
    await lean.Collector(anyio.sleep_forever).start()
    assert gc.isenabled()
    assert anyio.current_time() - began == pytest.approx(30)


@pytest.mark.parametrize("error", [None, ImportError("x")])
def test_collections_stop_while_a_program_is_imported(error: Exception | None) -> None:
    gc.enable()
    with contextlib.suppress(ImportError), lean.importing():
        assert not gc.isenabled()
        if error is not None:
            raise error
    assert gc.isenabled()
