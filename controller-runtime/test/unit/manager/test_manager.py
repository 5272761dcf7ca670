# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import asyncio
import base64
import dataclasses
import json
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import anyio
import anyio.to_thread
import pytest

import controller_runtime as ctrl
from controller_runtime import cache, controller, log, rest, webhook
from controller_runtime.apis.core.v1 import ConfigMap, Pod
from controller_runtime.envtest import Authority, eventually
from controller_runtime.machinery import NamespacedName
from controller_runtime.machinery.errors import NotFoundError
from controller_runtime.manager import (
    CredentialsError,
    GracePeriodExceededError,
    GroupStoppedError,
    ManagerError,
    Options,
    UnreachableError,
)
from controller_runtime.serving import HTTPRequest, HTTPResponse
from ctrl_testkit.managers import (
    ELECTION,
    Polite,
    Worker,
    answer,
    failure_of,
    new_manager,
    running,
)
from ctrl_testkit.small import make_pod


async def test_others_are_ready_before_the_leaders_runnables_start_and_end_before_them(
    diary: list[str],
) -> None:
    mgr = new_manager()
    mgr.add(Worker("controller", diary))
    mgr.add(Worker("other", diary, leader=False, ready_after=3))
    async with running(mgr):
        await mgr.elected.wait()
    assert diary == ["other starts at 0", "controller starts at 3", "other ended", "controller ended"]


async def test_what_is_added_at_run_time_starts_at_once_and_ends_with_the_rest(diary: list[str]) -> None:
    mgr = new_manager()
    async with running(mgr):
        await mgr.elected.wait()
        await anyio.sleep(5)
        mgr.add(Worker("late", diary))
        await anyio.sleep(1)
    assert diary == ["late starts at 5", "late ended"]
    with pytest.raises(GroupStoppedError, match="too late was added to leader-elected while stopping"):
        mgr.add(Worker("too late", diary))


async def test_what_is_added_at_run_time_has_not_the_log_fields_of_who_adds_it(
    diary: list[str],
) -> None:
    class Logs(Worker):
        async def start(self) -> None:
            diary.append(str(dict(log.context.bound())))
            await super().start()

    mgr = new_manager()
    async with running(mgr):
        await mgr.elected.wait()
        with log.into_context(reconcileID="1"):
            mgr.add(Logs("late", diary))
        await anyio.sleep(1)
    assert diary[0] == "{}"


async def test_one_failure_stops_all_and_is_what_start_raises(diary: list[str]) -> None:
    mgr = new_manager()
    mgr.add(Worker("good", diary))
    mgr.add(Worker("bad", diary, fails_after=2))
    with pytest.raises(ManagerError, match=r"^bad: boom$") as caught:
        await mgr.start()
    assert isinstance(caught.value.__cause__, ValueError)
    assert "good ended" in diary


async def test_a_failure_of_the_stop_is_logged_and_does_not_hide_the_first_failure(diary: list[str]) -> None:
    mgr = new_manager(graceful_shutdown_timeout=30)
    mgr.add(Worker("bad", diary, fails_after=2))
    mgr.add(Polite("slow", diary, takes=31))
    with log.captured() as lines, pytest.raises(ManagerError, match=r"^bad: boom$"):
        await mgr.start()
    (line,) = [line for line in lines if line["event"] == "Another error while stopping"]
    assert isinstance(line["error"], GracePeriodExceededError)


@pytest.mark.parametrize("step", ["start", "ready"])
async def test_a_runnable_that_fails_while_it_is_stopped_does_not_fail_the_manager(step: str) -> None:
    class Fails:
        name = "fails"

        async def ready(self) -> None:
            await self.fail("ready")

        async def start(self) -> None:
            await self.fail("start")

        async def fail(self, here: str) -> None:
            try:
                await anyio.sleep_forever()
            finally:
                if here == step:
                    raise ValueError("boom")

    mgr = new_manager()
    mgr.add(Fails())
    with log.captured() as lines:
        async with running(mgr):
            await anyio.sleep(1)
    failed = [line for line in lines if line["event"] == "Runnable failed while stopping"]
    assert [(line["runnable"], str(line["error"])) for line in failed] == [("fails", "boom")] * (
        step == "start"
    )


async def test_a_failure_while_starting_keeps_the_later_ones_from_starting(diary: list[str]) -> None:
    mgr = new_manager()
    mgr.add(Worker("slow", diary, leader=False, ready_after=60))
    mgr.add(Worker("bad", diary, leader=False, fails_after=2))
    mgr.add(Worker("controller", diary))
    with pytest.raises(ManagerError, match="bad: boom"):
        await mgr.start()
    assert anyio.current_time() == 1002
    assert not [line for line in diary if line.startswith("controller")]


async def test_a_runnable_with_stop_is_not_cancelled_within_the_grace_period(diary: list[str]) -> None:
    mgr = new_manager(graceful_shutdown_timeout=30)
    mgr.add(Polite("controller", diary, takes=20))
    async with running(mgr):
        await mgr.elected.wait()
    assert diary == ["controller finished"]


async def test_what_does_not_end_within_the_grace_period_is_cancelled_and_named(diary: list[str]) -> None:
    mgr = new_manager(graceful_shutdown_timeout=30)
    mgr.add(Polite("controller", diary, takes=31))
    mgr.add(Worker("quick", diary))

    async def stop() -> None:
        await mgr.elected.wait()
        mgr.stop()

    failure = await failure_of(mgr, stop)
    assert isinstance(failure, GracePeriodExceededError)
    assert str(failure).endswith("within grace period of 30 s: controller")
    assert diary[-1] == "controller was cancelled"


async def test_cancelling_start_stops_in_order_too(diary: list[str]) -> None:
    mgr = new_manager()
    mgr.add(Polite("controller", diary, takes=2))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mgr.start)
        await mgr.elected.wait()
        tasks.cancel_scope.cancel()
    assert diary == ["controller finished"]


async def test_start_returns_when_the_given_event_is_set(diary: list[str]) -> None:
    mgr = new_manager()
    mgr.add(Worker("controller", diary))
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mgr.start, stop)
        await mgr.elected.wait()
        stop.set()
    assert diary[-1] == "controller ended"


async def test_a_manager_starts_once() -> None:
    mgr = new_manager()
    async with running(mgr):
        await mgr.elected.wait()
    with pytest.raises(ManagerError, match="already started"):
        await mgr.start()


async def test_an_unreachable_server_is_tried_for_ten_seconds_and_named(diary: list[str]) -> None:
    def away(request: rest.Request) -> rest.FakeResponse:
        raise rest.TransportError("connection refused", host="https://api")

    mgr = new_manager(away)
    mgr.add(Worker("controller", diary))
    with pytest.raises(
        UnreachableError, match=r"^the API server cannot be reached: https://api: connection refused$"
    ):
        await mgr.start()
    assert 9 <= anyio.current_time() - 1000 <= 10
    assert diary == []


async def test_a_server_that_hangs_is_named_in_the_log_within_five_seconds() -> None:
    attempts: list[tuple[float, int]] = []

    async def hang(request: rest.Request) -> rest.FakeResponse:
        await anyio.sleep(request.timeout or 0)
        attempts.append((anyio.current_time() - 1000, len(lines)))
        raise rest.TransportTimeoutError("no response", host="https://api")

    mgr = new_manager(hang)
    with log.captured() as lines, pytest.raises(UnreachableError, match="no response"):
        await mgr.reach(10)
    assert attempts == [(4.0, 0), (9.0, 1)]
    assert [line["event"] for line in lines] == ["API server cannot be reached yet"]


async def test_a_server_that_comes_late_is_waited_for(diary: list[str]) -> None:
    def later(request: rest.Request) -> rest.FakeResponse:
        if anyio.current_time() < 1004:
            raise rest.TransportError("connection refused", host="https://api")
        return answer(request)

    mgr = new_manager(later)
    async with running(mgr):
        await mgr.elected.wait()
    assert anyio.current_time() == 1004


@pytest.mark.parametrize("waits", [True, False])
async def test_a_start_asks_the_server_once_whether_it_answers(waits: bool) -> None:
    paths = []

    def count(request: rest.Request) -> rest.FakeResponse:
        paths.append(request.path)
        return answer(request)

    async with new_manager(count) as mgr:
        if waits:
            assert await mgr.reach(5) == await mgr.reach(5) == 200
        async with running(mgr):
            await mgr.elected.wait()
    assert paths == ["/version"]


def test_a_lease_has_the_times_that_go_managers_give_it() -> None:
    """Replicas of both languages that share a lease must agree about when a leader has lapsed."""
    made = Options()
    assert (made.lease_duration, made.renew_deadline, made.retry_period) == (15.0, 10.0, 2.0)


def test_webhooks_have_the_port_that_go_managers_give_them() -> None:
    """Services and network policies that were written for a Go manager name this port."""
    assert Options().webhook_port == 9443


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"leader_election": True}, "leader election needs an id"),
        ({"leader_election": True, "leader_election_id": "x"}, "leader election needs a namespace"),
        (
            {**ELECTION, "renew_deadline": 15},
            "leader election: lease duration must be greater than renew deadline",
        ),
        ({"metrics_bind_address": "here"}, "listen on 'here': want host:port"),
    ],
)
async def test_options_that_make_no_sense_are_refused_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ManagerError, match=message):
        new_manager(**options)


async def test_the_clients_writes_say_how_fields_are_validated() -> None:
    def handler(request: rest.Request) -> rest.FakeResponse:
        asked.append((request.method, dict(request.query).get("fieldValidation")))
        return rest.FakeResponse(200, request.body or {"metadata": {"name": "p"}})

    asked: list[tuple[str, str | None]] = []
    pod = Pod.from_dict({"metadata": {"name": "p", "namespace": "ns"}})
    async with new_manager(handler, client_field_validation="Strict") as mgr:
        await mgr.api_reader.get(Pod, pod.key)
        await mgr.client.create(pod)
        await mgr.client.status.update(pod)
        await mgr.client.apply(pod, field_owner="me")
    assert asked == [("GET", None), ("POST", "Strict"), ("PUT", "Strict"), ("PATCH", "Strict")]


class Cancelled:
    """A runnable of which one step raises CancelledError although nothing cancelled it."""

    name = "cancelled"

    def __init__(self, step: str) -> None:
        self._step = step

    async def ready(self) -> None:
        if self._step == "ready":
            raise asyncio.CancelledError

    async def start(self) -> None:
        if self._step == "start":
            future = asyncio.get_running_loop().create_future()
            future.cancel()
            await future
        elif self._step == "own task":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        await anyio.sleep_forever()


@pytest.mark.parametrize("step", ["start", "ready", "own task"])
async def test_a_cancelled_error_of_a_runnable_fails_the_manager(step: str, diary: list[str]) -> None:
    mgr = new_manager()
    mgr.add(Cancelled(step))
    mgr.add(Worker("other", diary))
    with anyio.fail_after(60):
        with pytest.raises(ManagerError, match="cancelled: CancelledError was raised"):
            await mgr.start()
    assert diary == ["other starts at 0", "other ended"]


async def test_a_cancelled_error_while_connecting_fails_the_manager(diary: list[str]) -> None:
    def cancelled(request: rest.Request) -> rest.FakeResponse:
        raise asyncio.CancelledError

    mgr = new_manager(cancelled)
    mgr.add(Worker("worker", diary))
    with anyio.fail_after(60):
        with pytest.raises(ManagerError, match="start: CancelledError was raised"):
            await mgr.start()
    assert diary == []


async def test_a_service_that_ends_by_itself_fails_the_manager() -> None:
    class Ends(webhook.Server):
        async def ready(self) -> None:
            return

        async def start(self) -> None:
            return

    mgr = new_manager()
    mgr.add(Ends())
    with anyio.fail_after(60):
        with pytest.raises(ManagerError, match="webhook server ended although it was not stopped"):
            await mgr.start()


async def test_a_controller_whose_workers_end_fails_the_manager() -> None:
    mgr = new_manager()
    made = controller.Controller("named", AsyncMock())
    mgr.add(made)

    async def end() -> None:
        await made.ready()
        made.queue.shut_down()

    with anyio.fail_after(60):
        failure = await failure_of(mgr, end)
    assert "named ended although it was not stopped" in str(failure)


async def test_a_runnable_that_has_done_its_work_does_not_stop_the_manager(diary: list[str]) -> None:
    class Once:
        async def start(self) -> None:
            diary.append("done")

    mgr = new_manager()
    mgr.add(Once())
    mgr.add(Worker("worker", diary))
    async with running(mgr):
        await anyio.sleep(60)
    assert diary == ["done", "worker starts at 0", "worker ended"]


async def test_runnables_need_not_be_hashable_and_may_be_equal(diary: list[str]) -> None:
    @dataclasses.dataclass
    class Plain:
        diary: list[str]

        async def start(self) -> None:
            self.diary.append("starts")
            await anyio.sleep_forever()

    mgr = new_manager()
    mgr.add(Plain(diary))
    mgr.add(Plain(diary))
    async with running(mgr):
        await mgr.elected.wait()
        await anyio.sleep(1)
    assert diary == ["starts", "starts"]


async def test_a_review_in_flight_reads_what_the_stopped_cache_holds(world: Any) -> None:
    async def api(request: rest.Request) -> Any:
        if request.path == "/version":
            return answer(request)
        return await world.transport.send(request)

    reads: list[str] = []

    class Reviewing(webhook.Server):
        """Takes a second to answer its last review after it is stopped, and reads an object for the answer."""

        async def ready(self) -> None:
            return

        async def start(self) -> None:
            try:
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(1)
                    reads.append((await mgr.client.get(Pod, ("ns", "here"))).name)
                    reads.extend(pod.name for pod in await mgr.client.list(Pod))
                    for read in (mgr.client.get(Pod, ("ns", "absent")), mgr.client.list(ConfigMap)):
                        with pytest.raises((NotFoundError, cache.CacheNotStartedError)) as caught:
                            await read
                        reads.append(type(caught.value).__name__)

    world.put(make_pod("here"))
    mgr = new_manager(api)
    mgr.add(Reviewing())
    async with running(mgr):
        await mgr.elected.wait()
        await mgr.client.get(Pod, ("ns", "here"))
    assert reads == ["here", "here", "NotFoundError", "CacheNotStartedError"]


async def test_readiness_fails_until_caches_are_synced_and_names_what_is_degraded() -> None:
    def handler(request: rest.Request) -> rest.FakeResponse:
        if request.path == "/version":
            return answer(request)
        return rest.FakeResponse(
            403, {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "pods is forbidden"}
        )

    mgr = new_manager(handler, health_probe_bind_address="127.0.0.1:0")
    ready = mgr.health_server._routes["/readyz"]
    await mgr.cache.get_informer(Pod)
    assert (await ready(HTTPRequest(path="/readyz"))).status == 500
    async with running(mgr):
        await mgr.elected.wait()
        response = await ready(HTTPRequest(path="/readyz"))
    assert response.status == 200
    assert b"[+]informers ok: Pod is degraded: " in response.body
    assert b"pods is forbidden" in response.body


async def test_checks_are_registered_before_the_start_and_once() -> None:
    mgr = new_manager()
    mgr.add_readyz_check("a", lambda: None)
    with pytest.raises(ManagerError, match="check a exists already"):
        mgr.add_readyz_check("a", lambda: None)
    async with running(mgr):
        await mgr.elected.wait()
        with pytest.raises(ManagerError, match="check b was added after the start"):
            mgr.add_healthz_check("b", lambda: None)


async def test_the_client_works_before_the_start_when_the_manager_is_entered() -> None:
    def handler(request: rest.Request) -> rest.FakeResponse:
        return rest.FakeResponse(200, {"metadata": {"name": "p"}, "spec": {"containers": []}})

    async with new_manager(handler) as mgr:
        assert (await mgr.api_reader.get(Pod, NamespacedName("ns", "p"))).name == "p"


async def test_the_user_agent_and_extra_handlers_are_options() -> None:
    async def extra(_request: HTTPRequest) -> HTTPResponse:
        return HTTPResponse.text("extra")

    config = rest.Config("https://x", user_agent="connection/1")
    options = Options(
        user_agent="robot/2", metrics_bind_address="127.0.0.1:0", metrics_extra_handlers={"/extra": extra}
    )
    mgr = ctrl.Manager(config, options)
    assert mgr.config.user_agent == "robot/2"
    assert config.user_agent == "connection/1"
    mgr.add_metrics_server_extra_handler("/late", extra)
    assert set(mgr.metrics_server._routes) == {"/metrics", "/extra", "/late"}
    with pytest.raises(ManagerError, match="path /late is taken"):
        mgr.add_metrics_server_extra_handler("/late", extra)
    with pytest.raises(ManagerError, match="path /metrics is taken"):
        ctrl.Manager(config, Options(metrics_extra_handlers={"/metrics": extra}))
    off = ctrl.Manager(config, Options(metrics_bind_address="0"))
    off.add_metrics_server_extra_handler("/extra", extra)
    assert off.config.user_agent == "connection/1"


@pytest.mark.real_time
@pytest.mark.parametrize("given", [True, False])
async def test_secure_metrics_have_the_certificate_of_the_folder_or_one_of_their_own(
    tmp_path: Path, given: bool
) -> None:
    pair = Authority.create("ca").server("metrics", ["metrics.test"])
    pair.write(tmp_path)
    mgr = new_manager(
        metrics_bind_address="127.0.0.1:0",
        metrics_secure=True,
        metrics_cert_dir=str(tmp_path) if given else "",
    )
    async with running(mgr):
        assert mgr.metrics_server is not None
        server = mgr.metrics_server
        await eventually(lambda: server.port > 0, reason="it listens")
        shown = await anyio.to_thread.run_sync(ssl.get_server_certificate, ("127.0.0.1", server.port))
    assert (shown == pair.certificate.decode()) is given


async def test_a_server_that_does_not_accept_the_credentials_ends_the_start(diary: list[str]) -> None:
    def refuse(request: rest.Request) -> rest.FakeResponse:
        return rest.FakeResponse(401, {"kind": "Status", "code": 401, "message": "Unauthorized"})

    mgr = new_manager(refuse)
    mgr.add(Worker("controller", diary))
    with pytest.raises(CredentialsError, match="the API server does not accept the credentials: "):
        await mgr.start()
    assert (anyio.current_time(), diary) == (1000, [])


@pytest.mark.parametrize("grace", [30, -1])
async def test_a_stop_that_takes_long_says_once_for_what_it_waits(diary: list[str], grace: int) -> None:
    mgr = new_manager(graceful_shutdown_timeout=grace)
    mgr.add(Polite("slow", diary, takes=20))
    mgr.add(Polite("quick", diary, takes=1))
    with log.captured() as lines:
        async with running(mgr):
            await mgr.elected.wait()
    told = [line for line in lines if line["event"] == "Waiting for runnables to end"]
    assert [(line["group"], line["runnables"], line.get("limit")) for line in told] == [
        ("leader-elected", ["slow"], 30 if grace > 0 else None)
    ]


def _jwt(expiry: float) -> str:
    return f"e30.{base64.urlsafe_b64encode(json.dumps({'exp': expiry}).encode()).decode().rstrip('=')}.c2ln"


def _with_client(*, issued: timedelta) -> rest.Config:
    """Return a Config with a client certificate that was issued ``issued`` from now."""
    pair = Authority.create("ca").client("jane", now=datetime.now(UTC) + issued)
    return rest.Config("https://api", tls=rest.TLSConfig(cert=pair.certificate, key=pair.key))


REFUSED: dict[str, tuple[Callable[[], rest.Config], str]] = {
    "expired certificate": (
        lambda: _with_client(issued=timedelta(days=-5000)),
        r": the client certificate expired on \d{4}-\d\d-\d\d at \d\d:\d\d UTC$",
    ),
    "certificate of the future": (
        lambda: _with_client(issued=timedelta(days=5)),
        ": the client certificate is not valid before .* UTC: check the clock$",
    ),
    "valid certificate": (lambda: _with_client(issued=timedelta()), "https://api$"),
    "expired token": (
        lambda: rest.Config("https://api", credentials=rest.StaticToken(_jwt(1e9))),
        ": the token expired on 2001-09-09 at 01:46 UTC$",
    ),
    "valid token": (
        lambda: rest.Config("https://api", credentials=rest.StaticToken(_jwt(9e9))),
        "https://api$",
    ),
    "opaque token": (lambda: rest.Config("https://api", credentials=rest.StaticToken("a.b")), "https://api$"),
    "password": (lambda: rest.Config("https://api", credentials=rest.Basic("jane", "x")), "https://api$"),
    "missing token file": (
        lambda: rest.Config("https://api", credentials=rest.TokenFile("/no/such/file")),
        "https://api$",
    ),
    "nothing": (
        lambda: rest.Config("https://api"),
        ": the configuration has neither a token nor a client certificate$",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_the_error_for_refused_credentials_says_what_is_wrong_with_them(case: str) -> None:
    config, problem = REFUSED[case]
    transport = rest.FakeTransport(lambda _: rest.FakeResponse(401, {"kind": "Status", "code": 401}))
    mgr = ctrl.Manager(config(), Options(metrics_bind_address="0"), transport=transport)
    with pytest.raises(CredentialsError, match=problem):
        await mgr.start()


@pytest.mark.parametrize("by_tls", [True, False])
async def test_a_failed_handshake_names_the_expired_client_certificate(by_tls: bool) -> None:
    async def fail(_: rest.Request) -> rest.FakeResponse:
        cause = ssl.SSLError("alert certificate expired") if by_tls else ConnectionRefusedError("refused")
        raise rest.ConnectError("no connection", host="https://api") from cause

    config = _with_client(issued=timedelta(days=-5000))
    mgr = ctrl.Manager(config, Options(metrics_bind_address="0"), transport=rest.FakeTransport(fail))
    with pytest.raises(UnreachableError) as caught:
        await mgr.start()
    assert ("the client certificate expired on" in str(caught.value)) is by_tls


@pytest.mark.parametrize("status", [200, 302, 400, 403, 404, 407, 429])
async def test_an_address_that_is_not_that_of_an_api_server_is_reported_once(status: int) -> None:
    mgr = new_manager(lambda _: rest.FakeResponse(status, {}))
    with log.captured() as lines:
        assert await mgr.reach(1) == await mgr.reach(1) == status
    found = [line["status"] for line in lines if "may not be that of an API server" in line["event"]]
    assert found == ([status] if status in (302, 400, 404, 407) else [])


async def test_defaults_of_controllers_are_not_the_options_of_one() -> None:
    with pytest.raises(
        ManagerError, match=r"Options\(controller=…\) takes ctrl.ControllerDefaults, not Options"
    ):
        new_manager(controller=controller.Options())
