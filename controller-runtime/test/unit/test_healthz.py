# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import io
import json
from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from controller_runtime import healthz, log
from controller_runtime.serving import HTTPRequest


def bad() -> None:
    raise healthz.NotHealthyError("disk\non fire")


async def ask(checks: Mapping[str, Any], path: str = "/readyz", **query: str) -> tuple[int, str]:
    handler = healthz.HealthHandler("readyz", checks)
    answer = await handler(HTTPRequest(path=path, query={key: [value] for key, value in query.items()}))
    return answer.status, answer.body.decode()


async def test_nothing_wrong_is_a_short_ok() -> None:
    assert await ask({}) == (200, "ok")
    assert await ask({"a": healthz.ping}) == (200, "ok")


async def test_verbose_names_each_check() -> None:
    assert await ask({"b": healthz.ping, "a": healthz.ping}, verbose="") == (
        200,
        "[+]a ok\n[+]b ok\nreadyz check passed\n",
    )


async def test_a_failing_check_fails_the_endpoint_and_says_why_in_one_line() -> None:
    checks = {"a": bad, "b": healthz.ping}
    told = (500, "[-]a failed: disk on fire\n[+]b ok\nreadyz check failed\n")
    assert await ask(checks) == told
    assert await ask(checks, verbose="") == told
    assert await ask(checks, "/readyz/a") == (500, "internal server error: disk\non fire\n")
    assert await ask(checks, "/readyz/b") == (200, "ok")
    assert (await ask(checks, "/readyz/c"))[0] == 404


async def test_an_excluded_check_is_not_run_and_an_unknown_one_is_named() -> None:
    assert await ask({"a": bad}, exclude="a") == (200, "ok")
    assert (await ask({"a": bad}, exclude="x"))[1].splitlines()[1] == (
        'warn: some health checks cannot be excluded: no matches for "x"'
    )


async def test_a_remark_is_shown_unasked_and_does_not_fail() -> None:
    async def degraded() -> str:
        return "JobSet is degraded"

    assert await ask({"informers": degraded}) == (
        200,
        "[+]informers ok: JobSet is degraded\nreadyz check passed\n",
    )
    assert await ask({"informers": degraded}, "/readyz/informers") == (200, "ok: JobSet is degraded")


async def test_a_check_that_hangs_fails_after_five_seconds() -> None:
    began = anyio.current_time()
    status, text = await ask({"slow": anyio.sleep_forever}, "/readyz/slow")
    assert (status, anyio.current_time() - began) == (500, 5)
    assert text == "internal server error: no answer within 5 s\n"


async def test_a_check_with_a_bug_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        await ask({"bug": lambda: str(1 / 0)})


async def test_only_changes_of_a_check_are_logged() -> None:
    stream = io.StringIO()
    log.configure(stream=stream)
    failing = True

    def check() -> None:
        if failing:
            bad()

    handler = healthz.HealthHandler("readyz", {"a": check, "b": healthz.ping})
    for now in (True, True, True, False, False, True):
        failing = now
        await handler(HTTPRequest(path="/readyz"))
        await handler(HTTPRequest(path="/readyz", query={"exclude": ["a"]}))

    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["msg"] for line in lines] == [
        "Health check failed",
        "Health check passes again",
        "Health check failed",
    ]
    assert lines[0]["failed"] == {"a": "disk\non fire"}
    assert lines[1]["passed"] == ["a"]
