# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import json
from pathlib import Path
from typing import Any

import anyio
import controller_runtime as ctrl
import pytest
from controller_runtime import rest, serving
from controller_runtime.cache import CacheDegradedError
from controller_runtime.fake import FakeClient
from controller_runtime.healthz import NotHealthyError
from controller_runtime.log import captured as capture_logs
from controller_runtime.machinery import Object
from controller_runtime.machinery.errors import ForbiddenError
from controller_runtime.serving import HTTPRequest, HTTPResponse
from controller_runtime.webhook import CertWatcher, SelfSigned

from pkg.apis.config.v1alpha1 import StatusServer as Configuration
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.statusserver import (
    StatusHandler,
    StatusServer,
    setup_server,
    status_url,
    token_audience,
)
from pkg.statusserver.issuer import IssuerError
from testkit.builders import make_train_job

UPDATE = {"trainerStatus": {"progressPercentage": 5, "lastUpdatedTime": "2026-01-02T03:04:05Z"}}


class AllowAll:
    """An authorizer that accepts every client, after ``seconds``."""

    def __init__(self, seconds: float = 0) -> None:
        self._seconds = seconds

    async def authorize(self, header: str, namespace: str, train_job: str) -> None:
        del header, namespace, train_job
        await anyio.sleep(self._seconds)


class Slow:
    """A status writer that takes ``seconds``, and counts its started and finished patches."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.started = self.finished = 0

    async def patch(self, obj: Object, *_: object, **__: object) -> Object:
        self.started += 1
        await anyio.sleep(self._seconds)
        self.finished += 1
        return obj


def request(name: str = "bert", body: Any = UPDATE, **changed: Any) -> HTTPRequest:
    given = {"method": "POST", "path": status_url("lab", name), "body": json.dumps(body).encode(), **changed}
    return HTTPRequest(**{"headers": {"Authorization": "Bearer t"}, **given})


def refusal(answer: HTTPResponse) -> tuple[int, str, str]:
    body = json.loads(answer.body)
    assert (body["status"], body["code"], body["metadata"]) == ("Failure", answer.status, {})
    assert answer.content_type == "application/json"
    return answer.status, body["reason"], body["message"]


def test_names_are_those_that_pods_know() -> None:
    assert token_audience("a", "b") == "trainer.kubeflow.org/v1alpha1/namespaces/a/trainjobs/b/status"
    assert status_url("a", "b") == "/apis/trainer.kubeflow.org/v1alpha1/namespaces/a/trainjobs/b/status"


async def test_an_update_is_applied_beside_the_status_of_others() -> None:
    job = make_train_job("lab", "bert")
    job.status = type(job.status).from_dict({"jobsStatus": [{"name": "node", "active": 1}]})
    cluster = FakeClient(job)

    answer = await StatusHandler(cluster.status, AllowAll().authorize)(request())

    assert (answer.status, json.loads(answer.body)) == (200, UPDATE)
    stored = (await cluster.get(TrainJob, ("lab", "bert"))).status
    assert stored.trainer_status is not None
    assert stored.trainer_status.progress_percentage == 5
    assert stored.jobs_status is not None
    (apply,) = [call for call in cluster.calls if call.verb == "apply"]
    assert (apply.subresource, dict(apply.options)) == (
        "status",
        {"field_owner": "trainer-status", "force": True},
    )
    assert apply.body["metadata"] == {"name": "bert", "namespace": "lab"}


async def test_an_empty_update_is_not_sent() -> None:
    cluster = FakeClient()

    answer = await StatusHandler(cluster.status, AllowAll().authorize)(request(body={}))

    assert (answer.status, answer.body, cluster.calls) == (200, b"{}\n", [])


async def test_a_body_that_is_too_large_is_refused_first() -> None:
    answer = await StatusHandler(FakeClient().status, AllowAll().authorize)(
        request(body_rejected=True, path="/")
    )
    assert refusal(answer) == (413, "RequestEntityTooLarge", "Payload too large")


async def test_a_missing_right_is_known_until_a_client_is_authorized() -> None:
    class Denied(AllowAll):
        missing = "pods is forbidden"

        async def authorize(self, header: str, namespace: str, train_job: str) -> None:
            if self.missing:
                raise ForbiddenError(self.missing, code=403, reason="Forbidden")

    authorizer = Denied()
    handler = StatusHandler(FakeClient(make_train_job("lab", "bert")).status, authorizer.authorize)
    assert ((await handler(request())).status, handler.denied) == (500, "pods is forbidden")

    authorizer.missing = ""
    assert ((await handler(request())).status, handler.denied) == (200, "")


@pytest.mark.parametrize(
    "error",
    [
        ForbiddenError("no"),
        rest.TransportError("away", host="h"),
        CacheDegradedError(TrainJob.gvk, "no kind"),
        IssuerError("no issuer"),
    ],
)
async def test_an_unknown_verdict_is_an_internal_error(error: Exception) -> None:
    class Broken:
        async def authorize(self, *_: object) -> None:
            raise error

    answer = await StatusHandler(Slow(0), Broken().authorize)(request())
    assert refusal(answer) == (500, "InternalError", "Internal error")


async def test_one_train_job_has_two_updates_in_progress_and_others_are_not_delayed() -> None:
    writer = Slow(5)
    handler = StatusHandler(writer, AllowAll().authorize)
    answers: dict[str, list[int]] = {"bert": [], "bart": []}

    async def send(name: str) -> None:
        answers[name].append((await handler(request(name))).status)

    async with anyio.create_task_group() as tasks:
        for name in ("bert", "bert", "bert", "bart"):
            tasks.start_soon(send, name)

    assert (sorted(answers["bert"]), answers["bart"]) == ([200, 200, 429], [200])
    assert (await handler(request("bert"))).status == 200


async def test_updates_that_failed_are_not_in_progress_any_more() -> None:
    class Recovering(Slow):
        async def patch(self, obj: Object, *_: object, **__: object) -> Object:
            self.started += 1
            if self.started <= 3:
                raise rest.TransportError("away", host="h")
            return obj

    handler = StatusHandler(Recovering(0), AllowAll().authorize)
    assert [(await handler(request())).status for _ in range(4)] == [500, 500, 500, 200]


async def test_a_client_that_sends_too_much_is_asked_to_wait() -> None:
    handler = StatusHandler(Slow(5), AllowAll().authorize)
    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(handler, request())
        await anyio.sleep(1)
        answer = await handler(request())
    assert refusal(answer) == (429, "TooManyRequests", "Too many updates at once")
    assert answer.headers["Retry-After"] == "1"


@pytest.mark.parametrize(
    "handler", [StatusHandler(Slow(60), AllowAll().authorize), StatusHandler(Slow(0), AllowAll(60).authorize)]
)
async def test_an_update_ends_within_its_deadline(handler: StatusHandler) -> None:
    begun = anyio.current_time()

    with capture_logs() as lines:
        answer = await handler(request())

    assert refusal(answer)[:2] == (504, "Timeout")
    assert anyio.current_time() - begun == 10
    assert [(line["event"], line["trainJob"]) for line in lines] == [
        ("Status update took too long", "lab/bert")
    ]


def _serves(server: StatusServer) -> bool:
    try:
        return server.check() == ""
    except NotHealthyError:
        return False


async def test_the_liveness_check_fails_only_when_a_server_that_has_served_ends(tmp_path: Path) -> None:
    for file, content in zip(("tls.crt", "tls.key"), SelfSigned().pair(), strict=True):
        (tmp_path / file).write_bytes(content)
    mgr = ctrl.Manager(
        rest.Config("http://127.0.0.1:1"),
        ctrl.Options(webhook_host="127.0.0.1"),
        transport=rest.FakeTransport(lambda _request: rest.FakeResponse(404)),
    )
    certificates = CertWatcher(tmp_path / "tls.crt", tmp_path / "tls.key")
    server = setup_server(mgr, Configuration(port=0), certificates, serving.TLSOptions(), probes_of_v2_4=True)
    server.check_alive()
    with pytest.raises(NotHealthyError, match="has not been started yet"):
        server.check()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.start)
        with anyio.fail_after(10):
            while not _serves(server):  # noqa: ASYNC110  # the server has no event
                await anyio.sleep(0.01)
        server.check_alive()
        tasks.cancel_scope.cancel()

    with pytest.raises(NotHealthyError, match="has ended"):
        server.check_alive()
