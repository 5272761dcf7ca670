# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""An error whose attributes cannot be read ends neither the worker nor the manager.

``ctrl_testkit.odd_exceptions`` has such errors for other code of users. If one reaches pytest, pytest ends with an
internal error, because it cannot show it.
"""

import asyncio
from collections.abc import Callable
from typing import NoReturn

import anyio
import pytest

import controller_runtime as ctrl
from controller_runtime import log, rest
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import raised
from controller_runtime.machinery.errors import StatusError


def _unreadable(base: type[BaseException] = ValueError) -> BaseException:
    def fail(*_: object) -> NoReturn:
        raise LookupError("no attribute")

    made: BaseException = type("OddError", (base,), {"__getattribute__": fail})("odd")
    return made


def _with_cause() -> BaseException:
    error = RuntimeError("outer")
    error.__cause__ = _unreadable()
    return error


SHAPES: dict[str, Callable[[], BaseException]] = {
    "plain": _unreadable,
    "StatusError": lambda: _unreadable(StatusError),
    "cause": _with_cause,
    "member": lambda: BaseExceptionGroup("group", [_unreadable()]),
    "SystemExit": lambda: _unreadable(SystemExit),
    "CancelledError": lambda: _unreadable(asyncio.CancelledError),
}


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_worker_reports_an_unreadable_error_and_goes_on(shape: str) -> None:
    names: list[str] = []

    class Odd:
        async def reconcile(self, request: ctrl.Request) -> ctrl.Result:
            names.append(request.name)
            if request.name == "a":
                raise SHAPES[shape]()
            return ctrl.Result()

    client = FakeClient(*[ConfigMap(metadata=ctrl.ObjectMeta(namespace="n", name=name)) for name in "ab"])
    options = ctrl.Options(
        metrics_bind_address="0", controller=ctrl.ControllerDefaults(skip_name_validation=True)
    )
    mgr = ctrl.Manager(rest.Config("http://memory"), options, transport=client.transport)
    ctrl.new_controller_managed_by(mgr).for_(ConfigMap).complete(Odd())
    with log.captured() as lines:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mgr.start)
            await mgr.elected.wait()
            await anyio.sleep(5)
            mgr.stop()
    assert names.count("a") > 1
    assert "b" in names
    assert {line["event"] for line in lines if line["log_level"] == "error"} == {"Reconciler error"}


async def test_a_runnable_that_raises_an_unreadable_error_ends_the_manager_in_order() -> None:
    class Broken:
        async def start(self) -> None:
            raise _unreadable()

    mgr = ctrl.Manager(rest.Config("http://memory"), transport=FakeClient().transport)
    mgr.add(Broken())
    with pytest.raises(
        ctrl.ManagerError, match="Broken: OddError: its attributes cannot be read, LookupError"
    ):
        await mgr.start()


def test_a_readable_error_stays_what_it_is() -> None:
    error = ExceptionGroup("group", [ValueError("a"), ExceptionGroup("b", [TypeError("c")])])
    assert raised.readable(error) is error
