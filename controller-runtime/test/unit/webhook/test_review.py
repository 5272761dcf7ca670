# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import asyncio
import base64
import io
import json
import threading
from typing import Annotated, Any

import anyio
import pytest
from pydantic import Field, SecretStr

from controller_runtime import log, metrics, offload, rest, webhook
from controller_runtime.apis.admission.v1 import AdmissionRequest, AdmissionResponse
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.apis.meta.v1 import Status
from controller_runtime.log import captured as capture_logs
from controller_runtime.machinery import GVK, Int32, Object, Struct, Unstructured, crd, field, unstructured
from controller_runtime.machinery.crd import Markers
from controller_runtime.machinery.errors import InvalidError
from controller_runtime.machinery.patch import apply_json_patch
from controller_runtime.serving import HTTPRequest

PATH = "/validate--v1-configmap"
MAP = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"namespace": "a", "name": "b"},
    "data": {"k": "v"},
}


class Judge(webhook.CustomValidator[ConfigMap]):
    """Returns scripted results, and records its calls."""

    def __init__(self, verdict: Any = None) -> None:
        self.verdict = verdict
        self.asked: list[str] = []

    async def validate_create(self, obj: ConfigMap) -> list[str]:
        return await self._judge(f"create {obj.name} {obj.data}")

    async def validate_update(self, old: ConfigMap, new: ConfigMap) -> list[str]:
        return await self._judge(f"update {old.data} to {new.data}")

    async def validate_delete(self, obj: ConfigMap) -> list[str]:
        return await self._judge(f"delete {obj.name}")

    async def _judge(self, asked: str) -> list[str]:
        self.asked.append(asked)
        if isinstance(self.verdict, BaseException):
            raise self.verdict
        if isinstance(self.verdict, float):
            await anyio.sleep(self.verdict)
        return self.verdict if isinstance(self.verdict, list) else []


def review(operation: str = "CREATE", *, version: str = "v1", **request: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"admission.k8s.io/{version}",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u-1",
            "operation": operation,
            "namespace": "a",
            "name": "b",
            "object": MAP,
            **request,
        },
    }


async def post(
    judge: Any, body: Any, *, content_type: str = "application/json", **options: Any
) -> tuple[int, Any]:
    handler = judge if isinstance(judge, webhook.Handler) else webhook.ValidatorHandler(ConfigMap, judge)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = HTTPRequest(
        method="POST", path=PATH, headers={"Content-Type": content_type}, body=data, **options
    )
    response = await webhook.Webhook(PATH, handler)(request)
    return response.status, json.loads(response.body)


async def verdict(judge: Any, body: Any, **options: Any) -> dict[str, Any]:
    status, answer = await post(judge, body, **options)
    assert (status, answer["kind"], answer["response"].pop("uid")) == (200, "AdmissionReview", "u-1")
    response: dict[str, Any] = answer["response"]
    return response


async def test_a_yes_is_a_200_with_the_warnings() -> None:
    assert await verdict(Judge(["careful"]), review()) == {
        "allowed": True,
        "status": {"code": 200},
        "warnings": ["careful"],
    }


async def test_the_answer_has_the_version_of_the_question() -> None:
    _, answer = await post(Judge(), review(version="v1beta1"))
    assert answer["apiVersion"] == "admission.k8s.io/v1beta1"


@pytest.mark.parametrize("uid", ["705ab4f5-6393-11e8-b7cc-42010a800002", 'a"b\\c\n\x7f\u00e9\U0001f600'])
@pytest.mark.parametrize("verbosity", [log.INFO, log.TRACE])
async def test_the_usual_response_is_the_one_that_would_be_encoded(uid: str, verbosity: int) -> None:
    class Encoded(webhook.ValidatorHandler[ConfigMap]):
        async def handle_json(self, request: AdmissionRequest, obj: Any, old: Any) -> AdmissionResponse:
            return await super().handle_json(request, obj, old)

    bodies: set[bytes] = set()
    asked = json.dumps(review(uid=uid)).encode()
    request = HTTPRequest(method="POST", path=PATH, headers={"Content-Type": "application/json"}, body=asked)
    with capture_logs() as lines:
        log.limit(verbosity)
        for handler in (webhook.ValidatorHandler(ConfigMap, Judge()), Encoded(ConfigMap, Judge())):
            answer = await webhook.Webhook(PATH, handler)(request)
            assert json.loads(answer.body)["response"]["uid"] == uid
            bodies.add(answer.body)
    assert len(bodies) == 1
    told = [(each["allowed"], each["code"]) for each in lines if each["event"] == "Wrote response"]
    assert told == ([(True, 200)] * 2 if verbosity == log.TRACE else [])


async def test_each_operation_asks_its_own_method_about_the_right_objects() -> None:
    judge = Judge()
    await verdict(judge, review("CREATE"))
    await verdict(judge, review("UPDATE", oldObject={**MAP, "data": {"k": "old"}}))
    await verdict(judge, review("DELETE", object=None, oldObject=MAP))
    assert (await verdict(judge, review("CONNECT")))["allowed"]
    assert judge.asked == ["create b {'k': 'v'}", "update {'k': 'old'} to {'k': 'v'}", "delete b"]


async def test_field_errors_are_a_403_with_their_text() -> None:
    errors = field.ErrorList([field.invalid(field.Path("spec").child("x"), 3, "must be even")])
    assert await verdict(Judge(errors.to_aggregate()), review()) == {
        "allowed": False,
        "status": {"code": 403, "reason": "Forbidden", "message": "spec.x: Invalid value: 3: must be even"},
    }


async def test_a_status_error_is_passed_on_whole() -> None:
    error = InvalidError("no good", code=422, reason="Invalid", details={"name": "b"})
    assert (await verdict(Judge(error), review()))["status"] == {
        "apiVersion": "v1",
        "kind": "Status",
        "metadata": {},
        "status": "Failure",
        "message": "no good",
        "reason": "Invalid",
        "details": {"name": "b"},
        "code": 422,
    }


async def test_trouble_with_the_api_server_refuses() -> None:
    response = await verdict(Judge(rest.TransportError("connection refused", host="h")), review())
    assert (response["allowed"], response["status"]["code"]) == (False, 403)


async def test_a_bug_is_a_500_that_is_counted_and_not_a_broken_connection() -> None:
    before = metrics.REGISTRY.get_sample_value("controller_runtime_webhook_panics_total") or 0
    response = await verdict(Judge(KeyError("x")), review())
    assert response == {
        "allowed": False,
        "status": {"code": 500, "message": "panic: KeyError: 'x' [recovered]"},
    }
    assert metrics.REGISTRY.get_sample_value("controller_runtime_webhook_panics_total") == before + 1


@pytest.mark.parametrize(
    ("error", "message"),
    [(asyncio.CancelledError(), "CancelledError was raised"), (TimeoutError("the registry"), "the registry")],
    ids=["cancelled", "timeout"],
)
async def test_an_error_that_also_ends_a_review_from_outside_is_a_500(
    error: BaseException, message: str
) -> None:
    answer = await verdict(Judge(error), review())
    assert (answer["allowed"], answer["status"]["code"]) == (False, 500)
    assert message in answer["status"]["message"]


@pytest.mark.parametrize(
    ("query", "seconds"), [({"timeout": ["10s"]}, 9), ({}, 27), ({"timeout": ["5m0s"]}, 27)]
)
async def test_a_verdict_comes_before_the_caller_gives_up(
    query: dict[str, list[str]], seconds: float
) -> None:
    began = anyio.current_time()
    response = await verdict(Judge(3600.0), review(), query=query)
    assert anyio.current_time() - began == seconds
    assert response["status"] == {"code": 504, "message": f"no verdict within {seconds} s"}


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        pytest.param({"operation": "BREW"}, 'unknown operation "BREW"', id="operation"),
        pytest.param({"object": None}, "there is no content to decode", id="no object"),
        pytest.param({"object": {**MAP, "data": {"k": 3}}}, "ConfigMap: data.k: ", id="wrong type"),
    ],
)
async def test_a_request_that_makes_no_sense_is_a_400_inside_a_review(
    request_: dict[str, Any], message: str
) -> None:
    response = await verdict(Judge(), review(**request_))
    assert (response["allowed"], response["status"]["code"]) == (False, 400)
    assert response["status"]["message"].startswith(message)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(b"", "request body is empty", id="empty"),
        pytest.param(b"{", "body is not an AdmissionReview: ", id="no JSON"),
        pytest.param(b"[]", "body is not an AdmissionReview: ", id="no object"),
        pytest.param(
            {"apiVersion": "v1", "kind": "Pod"}, "body is not an AdmissionReview: v1, Kind=Pod", id="kind"
        ),
        pytest.param({**review(), "request": None}, "AdmissionReview has no request", id="no request"),
        pytest.param(review(uid=""), "AdmissionReview has no request, or a request without uid", id="no uid"),
        pytest.param(review(name=1), "body is not an AdmissionReview: ", id="a name that is a number"),
        pytest.param(
            {**review(), "apiVersion": "v1"}, "body is not an AdmissionReview: v1, Kind=Adm", id="version"
        ),
    ],
)
async def test_a_body_that_is_no_review_is_a_400_status(body: Any, message: str) -> None:
    status, answer = await post(Judge(), body)
    assert (status, answer["kind"], answer["code"], answer["reason"]) == (400, "Status", 400, "BadRequest")
    assert answer["message"].startswith(message)


async def test_only_json_is_read() -> None:
    status, answer = await post(Judge(), review(), content_type="text/plain")
    assert (status, answer["message"]) == (400, "contentType=text/plain, expected application/json")
    assert (await post(Judge(), review(), content_type="application/json; charset=utf-8"))[0] == 200


async def test_a_body_beyond_the_limit_is_a_413() -> None:
    status, answer = await post(Judge(), b"", body_rejected=True)
    assert (status, answer["message"]) == (413, "request entity is too large; limit is 7340032 bytes")


LONG = "x" * 1_000_000


@pytest.mark.real_time  # a thread takes its time
@pytest.mark.parametrize(
    ("body", "options", "code"),
    [
        pytest.param(review(), {"content_type": LONG}, 400, id="content type"),
        pytest.param({**review(), "apiVersion": LONG, "kind": LONG}, {}, 400, id="version and kind"),
        pytest.param(review(uid=LONG), {}, 400, id="uid"),
        pytest.param(review(), {"query": {"timeout": [LONG]}}, 400, id="timeout"),
        pytest.param(review("x" * 200_000), {}, 200, id="operation"),
        pytest.param(review(object={**MAP, "data": {LONG: 3}}), {}, 200, id="key"),
        pytest.param(
            review(userInfo={"username": "x" * 200_000}, object={"data": 3}), {}, 200, id="user in the log"
        ),
        pytest.param(review(options={"a": LONG}), {}, 413, id="options"),
    ],
)
async def test_no_text_of_a_body_is_repeated_at_length(body: Any, options: dict[str, Any], code: int) -> None:
    stream = io.StringIO()
    log.configure(stream=stream)
    status, answer = await post(Judge(), body, **options)
    assert status == code
    assert len(json.dumps(answer)) < 2000
    assert 0 < len(stream.getvalue()) < 4000


async def test_a_refusal_is_no_longer_than_32_ki_characters() -> None:
    errors = field.ErrorList([field.invalid(field.Path("spec"), 3, LONG)])
    response = await verdict(Judge(errors.to_aggregate()), review())
    assert response["status"]["code"] == 403
    assert 32 * 1024 < len(response["status"]["message"]) < 33 * 1024


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"content_type": "text/\udcff"}, r"contentType=text/\udcff, expected application/json"),
        ({"query": {"timeout": ["9" * 5000 + "s"]}}, "timeout is not a duration: 999"),
    ],
    ids=["content type", "timeout"],
)
async def test_what_cannot_be_read_around_the_body_is_a_400(options: dict[str, Any], message: str) -> None:
    status, answer = await post(Judge(), review(), **options)
    assert status == 400
    assert answer["message"].startswith(message)


async def test_refused_bodies_write_few_lines_however_many_there_are() -> None:
    served = webhook.Webhook(PATH, webhook.ValidatorHandler(ConfigMap, Judge()))
    with capture_logs() as lines:
        for _ in range(1000):
            assert (await served(HTTPRequest(path=PATH, body=b"{"))).status == 400
    assert len([line for line in lines if line["event"] == "Bad request"]) <= 25


@pytest.mark.real_time  # a thread takes its time
async def test_a_large_object_is_decoded_away_from_the_loop_and_a_small_one_is_not() -> None:
    class Where(Judge):
        async def validate_create(self, obj: ConfigMap) -> list[str]:
            return [str(await offload.run(threading.get_ident) != threading.get_ident())]

    assert (await verdict(Where(), review()))["warnings"] == ["False"]
    large = review(object={**MAP, "data": {"k": "v" * 40_000}})
    assert (await verdict(Where(), large))["warnings"] == ["True"]


@pytest.mark.real_time  # a thread takes its time
async def test_a_large_body_is_read_away_from_the_loop_and_a_small_one_is_not() -> None:
    class Body(bytes):
        def isascii(self) -> bool:
            threads.append(threading.get_ident())
            return super().isascii()

    threads: list[int] = []
    for size in (100, 1_000_000):
        body = Body(json.dumps(review(object={**MAP, "data": {"k": "v" * size}})).encode())
        assert (await post(Judge(), body))[0] == 200
    assert [each == threading.get_ident() for each in threads] == [True, False]


@pytest.mark.real_time  # a thread takes its time
@pytest.mark.parametrize("size", [0, 262_140, 262_143, 524_287])
async def test_only_utf_8_is_read(size: int) -> None:
    start = json.dumps(review())[:-1] + ',"x":"'
    text = (start + "x" * (size - len(start)) + "é☃𝄞" * 10 + '"}').encode()
    assert (await post(Judge(), text))[0] == 200
    for bad in (text.replace("☃".encode(), b"\xe2\x98", 1), text[:-2] + b'\xff"}', text[:-2] + b'"}\xe2'):
        status, answer = await post(Judge(), bad)
        assert (status, answer["reason"]) == (400, "BadRequest")


def wide(**metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": "a", "name": "b", **metadata},
        "spec": {"a": [{}] * 40_000},
    }


@pytest.mark.real_time  # a thread takes its time
@pytest.mark.parametrize(
    ("request_", "asked", "code", "warned"),
    [
        pytest.param({"operation": "CREATE", "object": wide()}, [], 403, False, id="create"),
        pytest.param(
            {"operation": "UPDATE", "object": wide(), "oldObject": MAP}, [], 403, False, id="made too large"
        ),
        pytest.param(
            {"operation": "UPDATE", "object": MAP, "oldObject": wide()},
            ["create b {'k': 'v'}"],
            200,
            False,
            id="made smaller",
        ),
        pytest.param(
            {"operation": "UPDATE", "object": wide(finalizers=[]), "oldObject": wide(finalizers=["x"])},
            [],
            200,
            True,
            id="metadata alone",
        ),
        pytest.param(
            {"operation": "DELETE", "object": None, "oldObject": wide()}, [], 200, True, id="delete"
        ),
    ],
)
async def test_an_object_that_decodes_to_too_much_is_not_decoded(
    request_: dict[str, Any], asked: list[str], code: int, warned: bool
) -> None:
    judge = Judge()
    response = await verdict(judge, review(**request_))
    assert (response["allowed"], response["status"]["code"]) == (code == 200, code)
    assert judge.asked == asked
    assert bool(response.get("warnings")) is warned
    if code == 403:
        assert response["status"]["message"].startswith(
            "the object is too large: it has more than 12000 objects"
        )


class Records(webhook.Handler):
    """Allows every request, and records it."""

    def __init__(self) -> None:
        self.asked: list[AdmissionRequest] = []

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        self.asked.append(request)
        return webhook.admission.allowed()


@pytest.mark.real_time  # a thread takes its time
async def test_a_handler_of_any_kind_does_not_get_an_old_object_that_is_too_large() -> None:
    handler = Records()
    await verdict(handler, review("UPDATE", object=MAP, oldObject=wide()))
    (request,) = handler.asked
    assert (request.operation, request.object, request.old_object) == ("CREATE", MAP, None)


class Chatty(Judge):
    """Logs a line for each object."""

    async def _judge(self, asked: str) -> list[str]:
        log.logger_from().info("Judged")
        return await super()._judge(asked)


@pytest.mark.real_time  # a thread takes its time
async def test_lines_of_the_log_name_the_request_as_it_was_sent() -> None:
    stream = io.StringIO()
    log.configure(stream=stream)
    smaller = review("UPDATE", object=MAP, oldObject=wide(), userInfo={"username": "me"})
    assert (await verdict(judge := Chatty(), smaller))["allowed"]
    assert judge.asked == ["create b {'k': 'v'}"]  # the old object is too wide and is not passed on
    line = json.loads(stream.getvalue())
    found = {name: line[name] for name in ("webhook", "operation", "user", "name", "requestID", "resource")}
    assert found == {
        "webhook": PATH,
        "operation": "UPDATE",
        "user": "me",
        "name": "b",
        "requestID": "u-1",
        "resource": None,
    }


async def test_each_yes_is_an_answer_of_its_own() -> None:
    first = webhook.admission.allowed()
    assert first.status is not None
    made = AdmissionResponse(allowed=True, status=Status(code=200, message=None), warnings=None)
    assert vars(first) == vars(made)
    assert vars(first.status) == vars(made.status)
    assert first.model_fields_set == made.model_fields_set
    assert first.status.model_fields_set == {"code", "message"}
    assert list(first.to_dict()) == list(made.to_dict())
    first.uid, first.status.code = "1", 201
    assert webhook.admission.allowed().to_dict() == {"uid": "", "allowed": True, "status": {"code": 200}}


@pytest.mark.real_time  # a thread takes its time
async def test_managed_fields_do_not_make_an_object_too_large() -> None:
    managed = [{"manager": "m", "fieldsV1": {f"f:{number}": {} for number in range(50_000)}}]
    obj = {**MAP, "metadata": {"name": "b", "managedFields": managed}}
    judge = Judge()
    assert (await verdict(judge, review("UPDATE", object=obj, oldObject=obj)))["allowed"]
    assert judge.asked == ["update {'k': 'v'} to {'k': 'v'}"]


@pytest.mark.real_time  # a thread takes its time
async def test_what_surrounds_the_objects_is_bounded_too() -> None:
    status, answer = await post(Judge(), review(userInfo={"extra": {"k": [[] for _ in range(40_000)]}}))
    assert status == 413
    assert "objects and lists" in answer["message"]
    unknown = review(unknown=[{}] * 100_000)
    assert (await verdict(Judge(), unknown))["allowed"]


async def test_requests_are_counted_by_path_and_code() -> None:
    def count(code: str) -> float:
        labels = {"webhook": PATH, "code": code}
        return metrics.REGISTRY.get_sample_value("controller_runtime_webhook_requests_total", labels) or 0

    before = count("200"), count("400")
    await post(Judge(), review())
    await post(Judge(), b"")
    assert (count("200"), count("400")) == (before[0] + 1, before[1] + 1)


async def test_the_latency_of_a_request_is_the_time_until_its_answer() -> None:
    def total() -> float:
        name = "controller_runtime_webhook_latency_seconds_sum"
        return metrics.REGISTRY.get_sample_value(name, {"webhook": PATH}) or 0

    before = total()
    await post(Judge(3.0), review())
    assert total() == before + 3


async def test_a_request_counts_as_in_flight_until_it_is_answered_or_cancelled() -> None:
    def in_flight() -> float | None:
        name = "controller_runtime_webhook_requests_in_flight"
        return metrics.REGISTRY.get_sample_value(name, {"webhook": PATH})

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(post, Judge(3.0), review())
        tasks.start_soon(post, Judge(6.0), review())
        await anyio.sleep(2)
        assert in_flight() == 2
        await anyio.sleep(2)
        assert in_flight() == 1
        tasks.cancel_scope.cancel()
    assert in_flight() == 0


class Defaults(webhook.CustomDefaulter[ConfigMap]):
    async def default(self, obj: ConfigMap) -> None:
        obj.data = {**(obj.data or {}), "a/b": "new"}
        obj.metadata.labels = {"x": "y"}


async def test_a_defaulters_changes_are_a_json_patch() -> None:
    response = await verdict(webhook.DefaulterHandler(ConfigMap, Defaults()), review())
    assert response["patchType"] == "JSONPatch"
    assert json.loads(base64.b64decode(response["patch"])) == [
        {"op": "add", "path": "/metadata/labels", "value": {"x": "y"}},
        {"op": "add", "path": "/data/a~1b", "value": "new"},
    ]


class Switches(webhook.CustomDefaulter[Unstructured]):
    async def default(self, obj: Unstructured) -> None:
        obj["spec"] = {"on": [{"now": True}], "off": False}


async def test_a_number_that_becomes_true_or_false_is_a_change() -> None:
    kind = unstructured(GVK("example.com", "v1", "Switch"))
    sent = {"apiVersion": "example.com/v1", "kind": "Switch", "spec": {"on": [{"now": 1}], "off": 0}}
    response = await verdict(webhook.DefaulterHandler(kind, Switches()), review(object=sent))
    assert json.loads(base64.b64decode(response["patch"])) == [
        {"op": "replace", "path": "/spec/on/0/now", "value": True},
        {"op": "replace", "path": "/spec/off", "value": False},
    ]


class Hides(webhook.CustomDefaulter[ConfigMap]):
    async def default(self, obj: ConfigMap) -> None:
        obj.data = {"password": SecretStr("s3cret")}  # type: ignore[dict-item]  # the mistake


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
async def test_a_defaulter_that_sets_a_secret_does_not_send_its_asterisks() -> None:
    with log.captured() as lines:
        response = await verdict(webhook.DefaulterHandler(ConfigMap, Hides()), review())
    assert "patch" not in response
    assert "ConfigMap.data.password is a SecretStr" in str([line.get("error") for line in lines])


class Settings(Struct):
    seconds: Annotated[int, Markers(format="int32")] = 0
    count: Int32 | None = None
    tags: set[str] = Field(default_factory=set)


class Timer(Object, group="example.com", version="v1"):
    spec: Settings = Field(default_factory=Settings)


class Tuned(webhook.CustomDefaulter[Timer]):
    async def default(self, obj: Timer) -> None:
        obj.spec.seconds = 5
        obj.spec.tags = (obj.spec.tags - {"b"}) | {"c"}


@pytest.mark.parametrize(
    "spec", [{}, {"spec": {"tags": ["b", "a"]}}], ids=["without spec", "an unsorted set"]
)
async def test_a_patch_fits_the_object_that_the_server_has_sent(spec: dict[str, Any]) -> None:
    sent = {"apiVersion": "example.com/v1", "kind": "Timer", "metadata": {"name": "t"}, **spec}
    response = await verdict(webhook.DefaulterHandler(Timer, Tuned()), review(object=sent))
    patched = apply_json_patch(sent, json.loads(base64.b64decode(response["patch"])))
    assert patched["spec"]["seconds"] == 5
    assert set(patched["spec"]["tags"]) == ({"a", "c"} if spec else {"c"})


class Lenient(webhook.CustomValidator[Timer]):
    async def validate_create(self, obj: Timer) -> list[str]:
        return []

    async def validate_update(self, old: Timer, new: Timer) -> list[str]:
        return []

    async def validate_delete(self, obj: Timer) -> list[str]:
        return []


class ForGo(Lenient):
    protects_go_clients = True


@pytest.mark.parametrize(("old", "code"), [(None, 400), (1, 400), (2**32, 200)])
async def test_an_object_that_go_can_read_must_stay_readable(old: int | None, code: int) -> None:
    timer, stored = ({"metadata": {"name": "t"}, "spec": {"seconds": each}} for each in (2**31, old))
    asked = review(object=timer) if old is None else review("UPDATE", object=timer, oldObject=stored)
    response = await verdict(webhook.ValidatorHandler(Timer, ForGo()), asked)
    assert response["status"]["code"] == code
    if code == 400:
        text = "Timer: spec.seconds: Invalid value: 2147483648: must fit into 32 bits"
        assert response["status"]["message"] == text


@pytest.mark.parametrize(
    "handler", [Records(), webhook.ValidatorHandler(Timer, ForGo())], ids=["any handler", "for Go"]
)
async def test_an_object_with_a_number_that_is_too_large_to_be_decoded_is_a_400(
    handler: webhook.Handler,
) -> None:
    new, old = ({"spec": {"seconds": seconds}} for seconds in (2**31, "large"))
    asked = json.dumps(review("UPDATE", object=new, oldObject=old))
    _, answer = await post(handler, asked.replace('"large"', "1e999").encode())
    status = answer["response"]["status"]
    assert status["code"] == 400
    assert status["message"].startswith("the object cannot be decoded: Number out of range")


async def test_a_number_that_does_not_fit_into_its_field_is_refused_with_the_fields_name() -> None:
    asked = review(object={"metadata": {"name": "t"}, "spec": {"count": 2**31}})
    response = await verdict(webhook.ValidatorHandler(Timer, Lenient()), asked)
    assert response["status"]["code"] == 400
    text = "Timer: spec.count: Input should be less than or equal to 2147483647"
    assert response["status"]["message"] == text


async def test_a_validator_that_does_not_ask_for_it_pays_for_no_check_of_numbers_for_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unexpected(*_: Any) -> None:
        raise AssertionError("the numbers are checked")

    monkeypatch.setattr(crd, "unreadable_in_go", unexpected)
    asked = review(object={"metadata": {"name": "t"}, "spec": {"seconds": 2**31}})
    response = await verdict(webhook.ValidatorHandler(Timer, Lenient()), asked)
    assert response["status"]["code"] == 200


class Keeps(webhook.CustomMutator[ConfigMap]):
    """Puts back keys that an update drops."""

    def concerns(self, request: AdmissionRequest, old: ConfigMap | None, new: ConfigMap) -> bool:
        return "skip" not in (new.data or {})

    async def mutate(self, request: AdmissionRequest, old: ConfigMap | None, new: ConfigMap) -> list[str]:
        dropped = (old.data or {}).keys() - (new.data or {}).keys() if old is not None else set()
        if "forbidden" in (new.data or {}):
            raise InvalidError("not this key", code=422, reason="Invalid")
        new.data = {**(old.data if old is not None and old.data else {}), **(new.data or {})}
        return [f"{request.operation} kept {key}" for key in sorted(dropped)]


async def test_a_mutator_knows_the_stored_object_and_may_warn() -> None:
    old = {**MAP, "data": {"k": "v", "l": "w"}}
    response = await verdict(webhook.MutatorHandler(ConfigMap, Keeps()), review("UPDATE", oldObject=old))
    assert json.loads(base64.b64decode(response["patch"])) == [{"op": "add", "path": "/data/l", "value": "w"}]
    assert response["warnings"] == ["UPDATE kept l"]


async def test_a_mutator_of_a_new_object_has_no_stored_one() -> None:
    response = await verdict(webhook.MutatorHandler(ConfigMap, Keeps()), review())
    assert response == {"allowed": True, "status": {"code": 200}}


async def test_a_mutator_may_leave_an_undecodable_object_to_the_schema() -> None:
    class Lenient(Keeps):
        leaves_undecodable = True

    bad = {**MAP, "data": {"k": 1}}
    for mutator, code in ((Keeps(), 400), (Lenient(), 200)):
        response = await verdict(webhook.MutatorHandler(ConfigMap, mutator), review(object=bad))
        assert response["status"]["code"] == code


@pytest.mark.parametrize(("leaves", "code"), [(False, 400), (True, 200)])
async def test_so_may_a_defaulter(leaves: bool, code: int) -> None:
    class Defaults(webhook.CustomDefaulter[ConfigMap]):
        leaves_undecodable = leaves

        async def default(self, obj: ConfigMap) -> None:
            obj.data = {}

    response = await verdict(
        webhook.DefaulterHandler(ConfigMap, Defaults()), review(object={**MAP, "data": 3})
    )
    assert response["status"]["code"] == code


async def test_a_mutator_may_refuse_and_may_not_be_concerned() -> None:
    handler = webhook.MutatorHandler(ConfigMap, Keeps())
    refused = await verdict(handler, review(object={**MAP, "data": {"forbidden": ""}}))
    assert (refused["allowed"], refused["status"]["code"]) == (False, 422)
    old = {**MAP, "data": {"k": "v"}}
    skipped = await verdict(handler, review("UPDATE", object={**MAP, "data": {"skip": ""}}, oldObject=old))
    assert skipped == {"allowed": True, "status": {"code": 200}}


@pytest.mark.parametrize("operation", ["DELETE", "CONNECT"])
async def test_a_mutator_is_not_asked_when_nothing_is_stored(operation: str) -> None:
    asked = review(operation, object=MAP, oldObject=MAP)
    response = await verdict(webhook.DefaulterHandler(ConfigMap, Defaults()), asked)
    assert response == {"allowed": True, "status": {"code": 200}}


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        ([{"a": 1}, {"b": 1}], [{"a": 1}, {"b": 2}], [{"op": "replace", "path": "/l/1/b", "value": 2}]),
        ([{"a": 1}], [{"a": 1, "t": 0}], [{"op": "add", "path": "/l/0/t", "value": 0}]),
        ([1, 2], [1, 3], [{"op": "replace", "path": "/l/1", "value": 3}]),
        ([1], [1, 2], [{"op": "replace", "path": "/l", "value": [1, 2]}]),
    ],
)
def test_a_list_of_the_same_length_is_patched_item_by_item(old: Any, new: Any, patch: Any) -> None:
    assert webhook.admission.json_patch({"l": old}, {"l": new}) == patch


async def test_a_validator_with_more_to_ask_gets_the_whole_request() -> None:
    class Curious(webhook.ValidatorHandler[ConfigMap]):
        async def handle_json(self, request: AdmissionRequest, obj: Any, old: Any) -> AdmissionResponse:
            assert request.user_info is not None
            users.append(request.user_info.username)
            return await super().handle_json(request, obj, old)

    users: list[str | None] = []
    handler = Curious(ConfigMap, Judge())
    assert (await verdict(handler, review(userInfo={"username": "me"})))["allowed"]
    assert users == ["me"]


async def test_a_handler_may_pass_a_request_with_decoded_objects_to_another() -> None:
    class Both(webhook.Handler):
        async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
            validated = await webhook.ValidatorHandler(ConfigMap, judge).handle(request)
            mutated = await webhook.MutatorHandler(ConfigMap, Keeps()).handle(request)
            return webhook.admission.allowed(
                warnings=[*(validated.warnings or ()), *(mutated.warnings or ())]
            )

    judge = Judge(["validated"])
    old = {**MAP, "data": {"l": "w"}}
    response = await verdict(Both(), review("UPDATE", oldObject=old))
    assert response["warnings"] == ["validated", "UPDATE kept l"]
    assert judge.asked == ["update {'l': 'w'} to {'k': 'v'}"]


async def test_any_handler_may_stand_behind_a_path() -> None:
    class No(webhook.Handler):
        async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
            return AdmissionResponse(allowed=False)

    assert await verdict(No(), review()) == {"allowed": False}
