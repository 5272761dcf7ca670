# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The layers of an outgoing request: throttle, Retry-After, credentials, counting."""

import asyncio
import json

import anyio
import anyio.lowlevel
import pytest

from controller_runtime import log, rest
from controller_runtime.machinery import Resource
from controller_runtime.machinery.errors import TooManyRequestsError
from controller_runtime.rest import layers
from controller_runtime.rest import request as requests

GET = rest.Request("GET", "/x")


def answers(*responses: rest.Response | Exception) -> rest.FakeTransport:
    """Return a transport that gives one answer after the other, and repeats the last one."""
    queue = list(responses)

    def handler(request: rest.Request) -> rest.Response:
        answer = queue.pop(0) if len(queue) > 1 else queue[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return rest.FakeTransport(handler)


class Renewable(rest.Credentials):
    """Credentials with several tokens; each refresh changes to the next."""

    def __init__(self, *tokens: str) -> None:
        self.tokens = list(tokens)
        self.refreshed = 0

    async def headers(self) -> dict[str, str]:
        return {"Authorization": self.tokens[0]}

    async def refresh(self) -> bool:
        self.refreshed += 1
        await anyio.sleep(1)
        if len(self.tokens) == 1:
            return False
        del self.tokens[0]
        return True


async def test_a_burst_goes_at_once_and_the_rest_at_the_rate() -> None:
    throttle = layers.Throttle(answers(rest.FakeResponse()), qps=10, burst=3)
    began = anyio.current_time()
    passed: list[float] = []

    async def one() -> None:
        await throttle.send(GET)
        passed.append(round(anyio.current_time() - began, 6))

    async with anyio.create_task_group() as tasks:
        for _ in range(6):
            tasks.start_soon(one)
    assert passed == [0, 0, 0, 0.1, 0.2, 0.3]


JOB_SETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", namespaced=True)
OTHERS = Resource("jobset.x-k8s.io", "v1alpha2", "others", namespaced=True)
EVENTS = Resource("", "v1", "events", namespaced=True)


async def test_each_resource_has_a_limit_of_its_own() -> None:
    throttle = layers.Throttle(answers(rest.FakeResponse()), qps=10, burst=3)
    began = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(throttle.send, requests.get(JOB_SETS, "team-a", f"a-{number}"))
        await anyio.lowlevel.checkpoint()
        for resource in (EVENTS, OTHERS):
            await throttle.send(requests.create(resource, "team-a", b"{}"))
        await throttle.send(GET)
        assert anyio.current_time() == began
        tasks.cancel_scope.cancel()


async def test_a_subresource_counts_as_its_resource() -> None:
    throttle = layers.Throttle(answers(rest.FakeResponse()), qps=10, burst=1)
    request = requests.get(JOB_SETS, "team-a", "a")
    began = anyio.current_time()
    await throttle.send(request)
    await throttle.send(requests.subresource(request, "status"))
    await throttle.send(requests.post(requests.subresource(request, "scale"), b"{}"))
    assert anyio.current_time() - began == pytest.approx(0.2)


async def test_namespaces_whose_requests_wait_take_turns() -> None:
    throttle = layers.Throttle(answers(rest.FakeResponse()), qps=10, burst=1)
    passed: list[str] = []

    async def send(namespace: str) -> None:
        await throttle.send(requests.get(JOB_SETS, namespace, "a"))
        passed.append(namespace)

    async with anyio.create_task_group() as tasks:
        for namespace in ["greedy"] * 100 + ["other"] * 2:
            tasks.start_soon(send, namespace)
        await anyio.sleep(0.45)
        assert passed.count("other") == 2
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("qps", [0, -1])
async def test_no_rate_does_not_throttle(qps: float) -> None:
    throttle = layers.Throttle(answers(rest.FakeResponse()), qps=qps, burst=1)
    began = anyio.current_time()
    for _ in range(100):
        await throttle.send(GET)
    assert anyio.current_time() == began


@pytest.mark.parametrize(("cancelled_after", "pause", "wait"), [(0.5, 0, 0.5), (1, 0, 0), (0.5, 1, 0)])
async def test_a_request_that_is_cancelled_while_it_waits_gives_its_token_back(
    cancelled_after: float, pause: float, wait: float
) -> None:
    throttle = layers.Throttle(answers(*[rest.FakeResponse()] * 2), qps=1, burst=1)
    await throttle.send(GET)
    waits = asyncio.create_task(throttle.send(GET))
    await anyio.lowlevel.checkpoint()
    asyncio.get_running_loop().call_later(cancelled_after, waits.cancel)
    await asyncio.wait([waits])
    await anyio.sleep(pause)
    began = anyio.current_time()
    await throttle.send(GET)
    assert anyio.current_time() - began == pytest.approx(wait)


@pytest.mark.parametrize("status", [429, 503])
async def test_a_server_that_says_when_is_asked_again_then(status: int) -> None:
    busy = rest.FakeResponse(status, headers={"Retry-After": "7"})
    began = anyio.current_time()
    response = await layers.RetryAfter(answers(busy, rest.FakeResponse())).send(GET)
    assert (response.status, anyio.current_time() - began) == (200, 7)
    assert busy.closed


@pytest.mark.parametrize(
    ("request_", "response"),
    [
        pytest.param(GET, rest.FakeResponse(503), id="it does not say when"),
        pytest.param(GET, rest.FakeResponse(404, headers={"Retry-After": "1"}), id="it is not busy"),
        pytest.param(
            rest.Request("GET", "/x", stream=True),
            rest.FakeResponse(429, headers={"Retry-After": "1"}),
            id="it is a stream",
        ),
    ],
)
async def test_other_answers_are_passed_on(request_: rest.Request, response: rest.FakeResponse) -> None:
    inner = answers(response)
    assert await layers.RetryAfter(inner).send(request_) is response
    assert len(inner.requests) == 1


async def test_a_server_that_stays_busy_is_believed_in_the_end() -> None:
    inner = answers(rest.FakeResponse(429, headers={"Retry-After": "1"}))
    began = anyio.current_time()
    response = await layers.RetryAfter(inner, max_retries=3).send(GET)
    assert (response.status, len(inner.requests)) == (429, 4)
    assert anyio.current_time() - began == 4
    with pytest.raises(TooManyRequestsError) as refused:
        await response.raise_for_status()
    assert refused.value.retry_after == 0  # the layer has waited already


async def test_a_request_that_waits_long_is_named_once_with_the_reason() -> None:
    causes = [
        {"reason": "DisruptionBudget", "message": "The budget b needs 1 healthy pods and has 1 currently"}
    ]
    refusal = {"kind": "Status", "code": 429, "message": "Cannot evict pod.", "details": {"causes": causes}}

    def refusing() -> rest.FakeTransport:
        return answers(rest.FakeResponse(429, refusal, headers={"Retry-After": "2"}))

    with log.captured() as lines:
        await layers.RetryAfter(refusing(), max_retries=1).send(GET)
        assert lines == []
        await layers.RetryAfter(refusing(), max_retries=9).send(rest.Request("POST", "/pods/p/eviction"))
    (line,) = lines
    assert line["log_level"] == "warning"
    assert (line["method"], line["path"], line["status"]) == ("POST", "/pods/p/eviction", 429)
    assert line["reason"] == "Cannot evict pod. The budget b needs 1 healthy pods and has 1 currently"
    assert line["seconds"] == 6


async def test_many_requests_that_wait_do_not_fill_the_log() -> None:
    layer = layers.RetryAfter(answers(rest.FakeResponse(503, headers={"Retry-After": "10"})), max_retries=0)
    with log.captured() as lines:
        async with anyio.create_task_group() as tasks:
            for _ in range(100):
                tasks.start_soon(layer.send, GET)
    assert 0 < len(lines) <= 25


async def test_a_refused_identity_is_renewed_once_for_all_who_were_refused() -> None:
    credentials = Renewable("old", "new")

    def handler(request: rest.Request) -> rest.Response:
        return rest.FakeResponse(200 if request.headers["Authorization"] == "new" else 401)

    layer = layers.Authorize(rest.FakeTransport(handler), credentials, "h")
    statuses: list[int] = []

    async def one() -> None:
        statuses.append((await layer.send(GET)).status)

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(one)
    assert (statuses, credentials.refreshed) == ([200] * 5, 1)


class Unrenewable(Renewable):
    async def refresh(self) -> bool:
        raise rest.ConfigError("plugin failed")


@pytest.mark.parametrize("credentials", [Renewable("only"), Unrenewable("only")])
async def test_a_401_that_nothing_new_can_help_is_passed_on(credentials: rest.Credentials) -> None:
    inner = answers(rest.FakeResponse(401))
    response = await layers.Authorize(inner, credentials, "h").send(GET)
    assert (response.status, len(inner.requests)) == (401, 1)


async def test_credentials_that_cannot_be_had_are_no_answer() -> None:
    class Broken(rest.Credentials):
        async def headers(self) -> dict[str, str]:
            raise rest.ConfigError("token file /t: gone")

    with pytest.raises(rest.TransportError, match=r"^https://h: token file /t: gone$"):
        await layers.Authorize(answers(rest.FakeResponse()), Broken(), "https://h").send(GET)


async def test_each_warning_is_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure()
    header = '299 - "use \\"v2\\", not v1", 299 - "unknown field \\"x\\""'
    layer = layers.Warn(answers(rest.FakeResponse(headers={"Warning": header})))
    for _ in range(3):
        await layer.send(GET)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [each["warning"] for each in lines] == ['use "v2", not v1', 'unknown field "x"']


async def test_every_answer_is_counted_and_so_is_none() -> None:
    seen: list[tuple[str, str, str]] = []
    inner = answers(rest.FakeResponse(404), rest.TransportError("gone", host="h"))
    meter = layers.Meter(inner, "h:1", lambda *labels: seen.append(labels))
    await meter.send(GET)
    with pytest.raises(rest.TransportError):
        await meter.send(GET)
    assert seen == [("404", "GET", "h:1"), ("<error>", "GET", "h:1")]
