# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""An API server that does not answer is reported once for all kinds: in the log, in a metric and in readiness."""

from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from controller_runtime import cache, metrics, rest
from controller_runtime.apis.core.v1 import ConfigMap, Node, Pod, Secret
from controller_runtime.log import captured as capture_logs
from controller_runtime.machinery import Object
from controller_runtime.rest import FakeResponse, FakeTransport

KINDS: tuple[type[Object], ...] = (ConfigMap, Node, Pod, Secret)
REFUSED = rest.TransportError("connection refused", host="https://api")
NOT_SERVING = {"kind": "Status", "code": 503, "reason": "ServiceUnavailable", "message": "etcd is down"}


def unavailable(_request: Any) -> FakeResponse:
    return FakeResponse(503, NOT_SERVING)


def unauthorized(_request: Any) -> FakeResponse:
    return FakeResponse(
        401, {"kind": "Status", "code": 401, "reason": "Unauthorized", "message": "Unauthorized"}
    )


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    with capture_logs() as captured:
        yield captured


def reports(lines: list[Any]) -> list[str]:
    """Return the messages of level info and above, and clear all captured lines."""
    taken = [line["event"] for line in lines if line["log_level"] in ("info", "warning", "error")]
    lines.clear()
    return taken


def exported() -> float:
    value = metrics.REGISTRY.get_sample_value("controller_runtime_cache_api_server_unavailable")
    assert value is not None
    return value


def degraded(kind: type[Object]) -> float | None:
    return metrics.REGISTRY.get_sample_value("controller_runtime_cache_degraded", kind.gvk._asdict())


@pytest.fixture
async def watching(start: Any) -> cache.Cache:
    """A synced cache of several kinds."""
    made: cache.Cache = await start()
    for kind in KINDS:
        await made.get_informer(kind)
    await made.wait_for_sync(1)
    return made


UNAVAILABLE = "API server is unavailable"
CREDENTIALS = "API server does not accept the credentials"


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        pytest.param(lambda _: REFUSED, UNAVAILABLE, id="unreachable"),
        pytest.param(unavailable, UNAVAILABLE, id="answering 503"),
        pytest.param(unauthorized, CREDENTIALS, id="answering 401"),
    ],
)
async def test_an_outage_is_two_lines_whatever_is_watched(
    server: Any, watching: cache.Cache, lines: list[Any], fault: Any, said: str
) -> None:
    assert (watching.remarks(), exported()) == ([], 0)
    server.faults.extend([fault] * 1000)
    server.hang_up(REFUSED)
    await anyio.sleep(5)
    assert (reports(lines), exported()) == ([said], 1)
    await anyio.sleep(40)
    (remark,) = watching.remarks()
    assert remark.startswith("the API server has been unavailable for 45 s: ")
    assert [obj.name for obj in await watching.list(ConfigMap)] == []
    assert reports(lines) == []
    server.faults.clear()
    await anyio.sleep(40)
    assert (reports(lines), exported(), watching.remarks()) == (["API server is available again"], 0, [])


@pytest.mark.parametrize("first", [lambda _: REFUSED, unavailable], ids=["unreachable", "503"])
async def test_refused_credentials_are_told_also_during_an_outage(
    server: Any, watching: cache.Cache, lines: list[Any], first: Any
) -> None:
    server.faults.extend([first] * 1000)
    server.hang_up(REFUSED)
    await anyio.sleep(20)
    assert reports(lines) == [UNAVAILABLE]
    server.faults.clear()
    server.faults.extend([unauthorized] * 1000)
    await anyio.sleep(60)
    assert reports(lines) == [CREDENTIALS]
    (remark,) = watching.remarks()
    assert remark.endswith(": Unauthorized")
    server.faults.clear()
    server.faults.extend([first, unauthorized] * 500)  # two servers, one of which starts again and again
    await anyio.sleep(60)
    assert reports(lines) == []
    server.faults.clear()
    await anyio.sleep(60)
    assert (reports(lines), watching.remarks()) == (["API server is available again"], [])


async def test_an_interruption_counts_from_the_first_failure_until_the_watch_succeeds(
    server: Any, watching: cache.Cache
) -> None:
    assert watching.interrupted_since(ConfigMap) is None
    server.faults.extend([unavailable] * 1000)
    server.hang_up(REFUSED)
    broken = anyio.current_time()
    await anyio.sleep(20)
    assert watching.interrupted_since(ConfigMap) == broken
    server.faults.clear()
    await anyio.sleep(40)
    assert watching.interrupted_since(ConfigMap) is None


async def test_a_kind_that_is_not_cached_is_not_interrupted(start: Any) -> None:
    assert (await start()).interrupted_since(ConfigMap) is None


async def test_a_restart_that_lasts_a_moment_is_not_reported(
    server: Any, watching: cache.Cache, lines: list[Any]
) -> None:
    server.faults.extend([lambda _: REFUSED] * len(KINDS))
    server.hang_up(REFUSED)
    await anyio.sleep(60)
    assert (reports(lines), exported()) == ([], 0)


async def test_an_outage_before_the_first_list_is_reported(server: Any, start: Any, lines: list[Any]) -> None:
    server.faults.extend([lambda _: REFUSED] * 1000)
    made = await start()
    await made.get_informer(ConfigMap)
    await anyio.sleep(10)
    assert reports(lines) == ["API server is unavailable"]
    made.remove_informer(ConfigMap)
    server.faults.clear()
    await made.list(Pod)
    assert (reports(lines), made.remarks()) == (["API server is available again"], [])


def page_of_proxy(_request: Any) -> FakeResponse:
    raise rest.AnswerError("no JSON", host="https://api")


@pytest.mark.parametrize(
    ("fault", "said"),
    [(unavailable, "etcd is down"), (page_of_proxy, "https://api: no JSON")],
    ids=["503", "a page"],
)
async def test_errors_of_one_kind_are_not_an_outage_and_are_reported_when_they_last(
    server: Any, start: Any, lines: list[Any], fault: Any, said: str
) -> None:
    served, broken = server.transport, True

    async def break_one(request: Any) -> Any:
        return fault(request) if broken and request.path.endswith("/pods") else await served.send(request)

    server.transport = FakeTransport(break_one)
    made = await start()
    for kind in (ConfigMap, Pod):
        await made.get_informer(kind)
    await anyio.sleep(20)
    assert (reports(lines), made.remarks()) == ([], [])
    await anyio.sleep(60)
    assert (reports(lines), exported(), degraded(Pod)) == (["Kind cannot be listed or watched"], 0, 1)
    (remark,) = made.remarks()
    assert remark == f"Pod is degraded: {said}"
    broken = False
    await anyio.sleep(70)
    assert (reports(lines), made.remarks(), degraded(Pod)) == (["Kind is served again"], [], 0)


async def test_an_outage_ends_with_the_informer_whose_watch_alone_fails(server: Any, start: Any) -> None:
    made = await start()
    await made.get_informer(ConfigMap)
    await made.wait_for_sync(1)
    server.faults.extend([lambda _: REFUSED] * 1000)
    await made.get_informer(Secret)
    await anyio.sleep(10)
    assert (len(made.remarks()), exported()) == (1, 1)
    made.remove_informer(Secret)
    assert (made.remarks(), exported()) == ([], 0)


@pytest.mark.parametrize("after", [0.5, 30], ids=["before the outage counts", "in the outage"])
async def test_a_stopped_cache_reports_no_outage(server: Any, after: float) -> None:
    made = cache.Cache(server.transport)
    async with anyio.create_task_group() as tasks:
        await tasks.start(made.start)
        await made.get_informer(ConfigMap)
        await made.wait_for_sync(1)
        server.faults.extend([lambda _: REFUSED] * 1000)
        server.hang_up(REFUSED)
        await anyio.sleep(after)
        assert exported() == (after > 1)
        tasks.cancel_scope.cancel()
    await anyio.sleep(60)
    assert (made.remarks(), exported()) == ([], 0)


async def test_the_metric_of_a_kind_that_is_denied_goes_back_when_the_cache_stops(server: Any) -> None:
    refusal = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "not for you"}
    server.faults.extend([lambda _: FakeResponse(403, refusal)] * 1000)
    made = cache.Cache(server.transport)
    async with anyio.create_task_group() as tasks:
        await tasks.start(made.start)
        await made.get_informer(ConfigMap)
        await anyio.sleep(30)
        assert degraded(ConfigMap) == 1
        tasks.cancel_scope.cancel()
    assert degraded(ConfigMap) == 0
