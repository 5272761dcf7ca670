# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Scales, evictions, tokens and logs: the requests of the live client, and the same calls through each other client."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec
import pytest

import controller_runtime as ctrl
from controller_runtime import rest
from controller_runtime.apis.apps.v1 import Deployment
from controller_runtime.apis.autoscaling.v1 import Scale, ScaleSpec
from controller_runtime.apis.core.v1 import Pod, ServiceAccount
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.apis.policy.v1 import Eviction
from controller_runtime.client import (
    MERGE,
    CachedClient,
    Client,
    LiveClient,
    dry_run,
    interceptor,
    merge_from,
    namespaced,
    raw_patch,
    with_field_owner,
)
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import GVK, crd, errors, unstructured

NAMED = ObjectMeta(name="d", namespace="n")
DEPLOYMENT = Deployment(metadata=NAMED)
POD = Pod.from_dict({"metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": [{"name": "c"}]}})
SCALE = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d", "namespace": "n"}}
RESOURCES = {
    "/api/v1": [{"name": "pods", "kind": "Pod", "namespaced": True}],
    "/apis/apps/v1": [{"name": "deployments", "kind": "Deployment", "namespaced": True}],
}


class Recorder:
    """A server that records the requests and gives each the same answer."""

    def __init__(self, answer: Any = None, *, text: str = "") -> None:
        self.requests: list[rest.Request] = []
        self._answer = answer
        self._text = text

    async def send(self, request: rest.Request) -> rest.Response:
        if request.path in RESOURCES:
            return rest.FakeResponse(200, {"resources": RESOURCES[request.path]})
        self.requests.append(request)
        if self._answer is None:
            return Text(self._text)
        return rest.CompleteResponse(200, msgspec.json.encode(self._answer))


class Text(rest.CompleteResponse):
    def __init__(self, text: str) -> None:
        super().__init__(200, text.encode("utf-8", "surrogateescape"), {"Content-Type": "text/plain"})
        self.closed = False

    async def close(self) -> None:
        self.closed = True


async def test_the_answer_to_every_write_of_a_scale_is_a_scale() -> None:
    server = Recorder(SCALE | {"spec": {"replicas": 3}, "status": {"replicas": 1, "selector": "a=b"}})
    scales = LiveClient(server).subresource("scale")
    wanted = Scale(spec=ScaleSpec(replicas=3))

    found = await scales.get(DEPLOYMENT)
    changed = found.deep_copy()
    changed.spec.replicas = 5
    answers = [
        found,
        await scales.update(DEPLOYMENT, wanted),
        await scales.patch(DEPLOYMENT, raw_patch(MERGE, b'{"spec":{"replicas":3}}')),
        await scales.patch(DEPLOYMENT, merge_from(found), changed),
        await scales.apply(DEPLOYMENT, wanted, field_owner="me"),
    ]

    assert [(type(each), each.spec.replicas, each.status.selector) for each in answers] == 5 * [
        (Scale, 3, "a=b")
    ]
    assert {each.path for each in server.requests} == {"/apis/apps/v1/namespaces/n/deployments/d/scale"}
    assert [each.method for each in server.requests] == ["GET", "PUT", "PATCH", "PATCH", "PATCH"]
    sent = [msgspec.json.decode(each.body or b"null") for each in server.requests]
    assert sent[1] == SCALE | {
        "spec": {"replicas": 3}
    }  # with the name of the object, which the server demands
    assert sent[3] == {"spec": {"replicas": 5}}
    assert sent[4] == SCALE | {"spec": {"replicas": 3}}
    assert wanted.name == ""


async def test_a_scale_may_be_read_as_another_kind() -> None:
    kind = unstructured(GVK("autoscaling", "v1", "Scale"))
    found = await LiveClient(Recorder(SCALE)).subresource("scale").get(DEPLOYMENT, kind)
    assert isinstance(found, kind)


async def test_an_eviction_gets_the_name_of_its_pod() -> None:
    server = Recorder({"kind": "Status", "status": "Success"})
    await LiveClient(server).subresource("eviction").create(POD, Eviction())
    body = msgspec.json.decode(server.requests[0].body or b"")
    assert (body["apiVersion"], body["kind"]) == ("policy/v1", "Eviction")
    assert body["metadata"] == {"name": "p", "namespace": "n"}


@pytest.mark.parametrize("name", ["scale", "log"])
def test_a_name_that_was_computed_has_the_same_client(name: str) -> None:
    client = LiveClient(Recorder(SCALE))
    assert type(client.subresource(name[:1] + name[1:])) is type(client.subresource(name))


async def test_a_log_is_asked_for_with_its_options() -> None:
    server = Recorder(text="one\ntwo \udcff\n")
    logs = LiveClient(server).subresource("log")

    text = await logs.get(
        POD,
        container="c",
        previous=True,
        timestamps=True,
        tail_lines=0,
        since_seconds=60,
        limit_bytes=100,
    )
    async with logs.stream(POD, follow=True) as lines:
        assert [line async for line in lines] == ["one", "two �"]

    assert text == "one\ntwo �\n"
    whole, followed = server.requests
    assert whole.path == "/api/v1/namespaces/n/pods/p/log"
    assert dict(whole.query) == {
        "container": "c",
        "previous": "true",
        "timestamps": "true",
        "tailLines": "0",
        "sinceSeconds": "60",
        "limitBytes": "100",
    }
    assert whole.headers["Accept"] == "text/plain, */*"
    assert (whole.stream, whole.timeout, whole.bounds.size) == (False, rest.request.DEFAULT_TIMEOUT, 1 << 24)
    assert (followed.stream, followed.timeout, dict(followed.query)) == (True, None, {"follow": "true"})
    with pytest.raises(TypeError, match="LogOptions has no option tails; did you mean tail_lines"):
        await logs.get(POD, tails=3)  # type: ignore[call-arg]  # at run time
    with pytest.raises(TypeError, match="has no option"):
        logs.stream(POD, lines=3)  # type: ignore[call-arg]  # at run time


async def test_a_stream_that_is_left_early_is_closed() -> None:
    answers: list[Text] = []

    class Endless(Text):
        async def lines(self) -> AsyncIterator[bytes]:
            while True:
                yield b"again"

    class Server(Recorder):
        async def send(self, request: rest.Request) -> rest.Response:
            if request.path in RESOURCES:
                return await super().send(request)
            answers.append(Endless(""))
            return answers[-1]

    async with LiveClient(Server()).subresource("log").stream(POD) as lines:
        async for line in lines:
            assert line == "again"
            break
    assert [each.closed for each in answers] == [True]


class NoCache:
    """Records nothing and knows nothing."""

    def writing(self, _: object) -> AbstractContextManager[None]:
        return nullcontext()


WRAPPERS: dict[str, Callable[[FakeClient], Client]] = {
    "fake": lambda fake: fake,
    "cached": lambda fake: CachedClient(fake, NoCache()),  # type: ignore[arg-type]  # writes only
    "namespaced": lambda fake: namespaced(fake, "n"),
    "owner": lambda fake: with_field_owner(fake, "me"),
    "intercepted": lambda fake: interceptor.wrap(fake, interceptor.Funcs()),
}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
async def test_every_client_scales_evicts_and_reads_logs(wrap: Callable[[FakeClient], Client]) -> None:
    account = ServiceAccount(metadata=ObjectMeta(name="a", namespace="n"))
    fake = FakeClient(Deployment.from_dict({**DEPLOYMENT.to_dict(), "spec": {"replicas": 1}}), POD, account)
    fake.logs["n", "p", "c"] = "one\ntwo\nthree\n"
    client = wrap(fake)
    scales = client.subresource("scale")

    found = await scales.get(DEPLOYMENT)
    found.spec.replicas = 2
    await scales.update(DEPLOYMENT, found)
    with pytest.raises(errors.ConflictError):
        await scales.update(DEPLOYMENT, found)
    patched = await scales.patch(DEPLOYMENT, raw_patch(MERGE, b'{"spec":{"replicas":4}}'))
    applied = await scales.apply(DEPLOYMENT, Scale(spec=ScaleSpec(replicas=5)), field_owner="you", force=True)
    assert (patched.spec.replicas, applied.spec.replicas) == (4, 5)
    assert (await fake.get(Deployment, DEPLOYMENT.key)).spec.replicas == 5

    logs = client.subresource("log")
    assert await logs.get(POD, tail_lines=2) == "two\nthree\n"
    async with logs.stream(POD, follow=True, limit_bytes=5) as lines:
        assert [line async for line in lines] == ["one", "t"]
    await client.subresource("eviction").create(POD, Eviction())
    with pytest.raises(errors.NotFoundError):
        await fake.get(Pod, POD.key)
    assert [(each.verb, each.subresource) for each in fake.calls[:5]] == [
        ("get", "scale"),
        ("update", "scale"),
        ("update", "scale"),
        ("patch", "scale"),
        ("apply", "scale"),
    ]


async def test_the_namespace_and_the_settings_of_a_client_apply_to_scales_and_logs() -> None:
    fake = FakeClient(Deployment.from_dict({**DEPLOYMENT.to_dict(), "spec": {"replicas": 1}}), POD)
    ours = namespaced(fake, "n")
    assert (await ours.subresource("scale").get(Deployment(metadata=ObjectMeta(name="d")))).name == "d"
    assert await ours.subresource("log").get(Pod(metadata=ObjectMeta(name="p"))) == ""
    for call in (
        namespaced(fake, "other").subresource("scale").get(DEPLOYMENT),
        namespaced(fake, "other").subresource("log").get(POD),
    ):
        with pytest.raises(ValueError, match="outside the namespace other"):
            await call
    patch = raw_patch(MERGE, b'{"spec":{"replicas":4}}')
    await dry_run(fake).subresource("scale").patch(DEPLOYMENT, patch)
    await with_field_owner(fake, "me").subresource("scale").patch(DEPLOYMENT, patch)
    assert [each.options for each in fake.writes] == [
        {"dry_run": True, "type": MERGE},
        {"field_owner": "me", "type": MERGE},
    ]


async def test_the_calls_of_a_scale_can_be_intercepted() -> None:
    async def refuse(_: Client, name: str, *args: Any, **options: Any) -> None:
        raise errors.ForbiddenError(f"{name} {len(args)} {options}", code=403)

    funcs = interceptor.Funcs(
        subresource_get=refuse, subresource_update=refuse, subresource_patch=refuse, subresource_apply=refuse
    )
    scales = interceptor.wrap(FakeClient(), funcs).subresource("scale")
    for call, text in (
        (scales.get(DEPLOYMENT), "scale 2 {}"),
        (scales.update(DEPLOYMENT, Scale(), dry_run=True), "scale 2 {'dry_run': True}"),
        (scales.patch(DEPLOYMENT, raw_patch(MERGE, b"{}")), "scale 3 {}"),
        (scales.apply(DEPLOYMENT, Scale(), field_owner="me"), "scale 2 {'field_owner': 'me'}"),
    ):
        with pytest.raises(errors.ForbiddenError, match=text):
            await call


class Site(ctrl.Object, group="example.com", version="v1", plural="sites"):
    status: dict[str, str] | None = None


ON_SITES: dict[str, Callable[[Any, Any], Any]] = {
    "status update": lambda client, site: client.status.update(site),
    "status patch": lambda client, site: client.status.patch(
        site, raw_patch(MERGE, b'{"status": {"a": "b"}}')
    ),
    "status apply": lambda client, site: client.status.apply(site, field_owner="me"),
    "scale get": lambda client, site: client.subresource("scale").get(site),
    "scale update": lambda client, site: client.subresource("scale").update(site, Scale()),
    "scale patch": lambda client, site: client.subresource("scale").patch(site, raw_patch(MERGE, b"{}")),
    "other get": lambda client, site: client.subresource("other").get(site, Site),
    "other create": lambda client, site: client.subresource("other").create(site, site),
}


@pytest.mark.parametrize("call", ON_SITES)
async def test_the_lack_of_a_subresource_is_not_taken_for_the_lack_of_the_object(call: str) -> None:
    fake = FakeClient(crds=[crd.custom_resource_definition(Site)])
    site = await fake.create(Site(metadata=NAMED, status={"a": "b"}))
    clients: list[Any] = [
        fake,
        LiveClient(fake.transport, fake.mapper),
        namespaced(fake, "n"),
        with_field_owner(fake, "me"),
        interceptor.wrap(fake, interceptor.Funcs()),
    ]
    for client in clients:
        before = len(fake.calls)
        wanted = pytest.raises(
            errors.NotFoundError, match=r"n/d exists, but its kind has no subresource \w+$"
        )
        with wanted, ctrl.ignore_not_found(site):
            await ON_SITES[call](client, site)
        assert len(fake.calls) <= before + 1, "a test sees its own calls only"
    await fake.delete(site)
    for client in clients:
        with ctrl.ignore_not_found(site):
            await ON_SITES[call](client, site)


async def test_an_object_that_was_made_anew_does_not_lack_a_subresource() -> None:
    fake = FakeClient(crds=[crd.custom_resource_definition(Site)])
    old = await fake.create(Site(metadata=NAMED))
    await fake.delete(old)
    await fake.create(Site(metadata=NAMED))
    with ctrl.ignore_not_found(old):
        await fake.status.patch(old, raw_patch(MERGE, b"{}"))


async def test_a_reader_without_permission_gets_the_servers_answer() -> None:
    gone = {"kind": "Status", "code": 404, "reason": "NotFound", "message": 'sites.example.com "d" not found'}
    gone["details"] = {"name": "d", "group": "example.com", "kind": "sites"}

    def answer(request: rest.Request) -> rest.FakeResponse:
        return rest.FakeResponse(404, gone) if request.path.endswith("/status") else rest.FakeResponse(403)

    with pytest.raises(errors.NotFoundError, match=r'^sites.example.com "d" not found$'):
        await LiveClient(rest.FakeTransport(answer)).status.update(Site(metadata=NAMED))


async def test_a_scale_in_the_place_of_its_object_is_refused() -> None:
    client = FakeClient(Deployment.from_dict({"metadata": NAMED.to_dict(), "spec": {"replicas": 1}}))
    scales: Any = client.subresource("scale")
    scale = await scales.get(DEPLOYMENT)
    calls: list[Callable[[], Any]] = [
        lambda: scales.get(scale),
        lambda: scales.update(scale, DEPLOYMENT),
        lambda: scales.patch(scale, merge_from(scale)),
        lambda: scales.apply(scale, DEPLOYMENT, field_owner="me"),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="obj must be the object that is scaled, such as a Deployment"):
            await call()
