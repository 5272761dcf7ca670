# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""kubernetes-asyncio beside the library: both clients on a real API server, and exec on a server of the test's own."""

import asyncio
import contextlib
import dataclasses
import gc
import json
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from aiohttp import web
from kubernetes_asyncio import config as kubernetes_config
from kubernetes_asyncio import watch as kubernetes_watch
from kubernetes_asyncio.client import (
    ApiClient,
    ApiException,
    Configuration,
    CoreV1Api,
    NetworkingV1Api,
    models,
)
from kubernetes_asyncio.stream import WsApiClient

import controller_runtime as ctrl
from controller_runtime import rest
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Authority, Environment, eventually
from controller_runtime.interop import kubernetes_asyncio
from controller_runtime.rest import Config, StaticToken

pytestmark = pytest.mark.integration
Ingress = kubernetes_asyncio.kind(
    models.V1Ingress, group="networking.k8s.io", version="v1", plural="ingresses"
)
ASKED = web.AppKey("asked", list[str])


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Free connections that a test left open, so that this test fails, and not a later one."""
    yield
    gc.collect()


def ingress(namespace: str, name: str, service: str = "web") -> Any:
    backend = {"service": {"name": service, "port": {"number": 80}}}
    spec = {
        "rules": [
            {"host": "a.test", "http": {"paths": [{"path_type": "Prefix", "path": "/", "backend": backend}]}}
        ]
    }
    return Ingress(metadata=ObjectMeta(namespace=namespace, name=name), spec=spec)


async def test_both_clients_work_on_the_same_objects(
    rest_config: Config, live_client: LiveClient, namespace: str
) -> None:
    made = await live_client.create(ingress(namespace, "ours"))
    async with ApiClient(kubernetes_asyncio.configuration(rest_config)) as client:
        api = NetworkingV1Api(client)
        seen = await api.read_namespaced_ingress("ours", namespace)
        assert seen.metadata.uid == made.metadata.uid
        assert Ingress.from_dict(client.sanitize_for_serialization(seen)).spec == made.spec
        seen.metadata = models.V1ObjectMeta(name="theirs")
        await api.create_namespaced_ingress(namespace, seen)
        listed = await live_client.list(Ingress, namespace=namespace)
        assert [each.spec.rules[0].http.paths[0].backend.service.port.number for each in listed] == [80, 80]
        names = []
        async with kubernetes_watch.Watch() as events:
            async for event in events.stream(api.list_namespaced_ingress, namespace, timeout_seconds=10):
                names.append((event["type"], event["object"].metadata.name))
                if len(names) == 2:
                    changed = (await live_client.get(Ingress, (namespace, "theirs"))).deep_copy()
                    changed.spec.rules[0].host = "b.test"
                    await live_client.update(changed)
                if len(names) == 3:
                    break
    assert [sorted(names[:2]), names[2]] == [[("ADDED", "ours"), ("ADDED", "theirs")], ("MODIFIED", "theirs")]


async def test_a_manager_reconciles_such_a_kind(
    rest_config: Config, live_client: LiveClient, namespace: str
) -> None:
    hosts: list[str] = []
    mgr = ctrl.Manager(rest_config, ctrl.Options(metrics_bind_address="0"))

    class Reconciler:
        async def reconcile(self, request: ctrl.Request) -> ctrl.Result:
            found = await mgr.client.get(Ingress, request)
            hosts.extend(rule.host for rule in found.spec.rules)
            return ctrl.Result()

    ctrl.new_controller_managed_by(mgr).named("ingresses").for_(Ingress).complete(Reconciler())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mgr.start)
        await live_client.create(ingress(namespace, "one"))
        await eventually(lambda: hosts.count("a.test") > 0, reason="the Ingress is reconciled")
        mgr.stop()


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


async def test_a_client_uses_a_token_that_was_renewed(
    control_plane: Environment, namespace: str, tmp_path: Path
) -> None:
    valid = await control_plane.add_service_account(namespace, "reader")
    header = (await valid.credentials.headers())["Authorization"]
    token = written(tmp_path / "token", "expired")
    config = dataclasses.replace(valid, credentials=rest.TokenFile(token, period=0))
    async with ApiClient(kubernetes_asyncio.configuration(config)) as client:
        assert await status_of(client, namespace) == 401
        written(token, header.removeprefix("Bearer "))
        assert await status_of(client, namespace) == 403  # known, and without permissions


async def status_of(client: ApiClient, namespace: str) -> int:
    try:
        await CoreV1Api(client).list_namespaced_config_map(namespace)
    except ApiException as error:
        return int(error.status)
    return 200


@pytest.fixture
async def their_client(control_plane: Environment) -> AsyncIterator[ApiClient]:
    """A client of kubernetes-asyncio with its own login, from a kubeconfig."""
    configuration = Configuration()
    await kubernetes_config.load_kube_config_from_dict(
        control_plane.kubeconfig_for("admin", ["system:masters"]), client_configuration=configuration
    )
    configuration.disable_strict_ssl_verification = True
    async with ApiClient(configuration) as client:
        yield client


async def test_our_client_works_with_their_login(their_client: ApiClient, namespace: str) -> None:
    transport = kubernetes_asyncio.transport(their_client)
    client = LiveClient(transport)
    made = await client.create(
        ConfigMap(metadata=ObjectMeta(namespace=namespace, name="one"), data={"k": "ä"})
    )
    changed = made.deep_copy()
    changed.data = {"k": "2"}
    await client.patch(changed, ctrl.merge_from(made))
    with pytest.raises(ctrl.ConflictError):
        await client.update(made)
    with pytest.raises(ctrl.NotFoundError):
        await client.get(ConfigMap, (namespace, "absent"))
    listed = await client.list(ConfigMap, namespace=namespace, fields={"metadata.name": "one"})
    assert [each.data for each in listed] == [{"k": "2"}]
    async with client.watch(ConfigMap, namespace=namespace, fields={"metadata.name": "one"}) as events:
        with anyio.fail_after(30):
            assert (await anext(events)).type == "ADDED"
            await client.delete(made)
            assert (await anext(events)).type == "DELETED"
    await client.delete_all_of(ConfigMap, namespace=namespace)


def tls_of(authority: Authority, tmp_path: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.server("server", ["127.0.0.1"]).write(tmp_path))
    return context


@asynccontextmanager
async def serving(handler: Any, tmp_path: Path) -> AsyncIterator[Config]:
    """Serve on loopback with TLS; return the settings of a client that knows the authority and a token."""
    authority = Authority.create("ca")
    app = web.Application()
    app[ASKED] = []
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls_of(authority, tmp_path))
    await site.start()
    port = runner.addresses[0][1]
    tls = rest.TLSConfig(ca=authority.certificate)
    try:
        yield Config(f"https://127.0.0.1:{port}", tls=tls, credentials=StaticToken("secret"))
    finally:
        await runner.cleanup()


async def shell(request: web.Request) -> web.WebSocketResponse:
    """Write the command, and an error."""
    socket = web.WebSocketResponse(protocols=["v4.channel.k8s.io"])
    await socket.prepare(request)
    assert socket.ws_protocol == "v4.channel.k8s.io"
    assert request.path == "/api/v1/namespaces/team/pods/one/exec"
    if request.headers.get("Authorization") != "Bearer secret":
        await socket.close()
        return socket
    await socket.send_bytes(b"\1" + " ".join(request.query.getall("command")).encode())
    await socket.send_bytes(b"\2!")
    causes = {"details": {"causes": [{"message": "7"}]}}
    await socket.send_bytes(b"\3" + json.dumps({"status": "Failure", **causes}).encode())
    await socket.close()
    return socket


async def test_exec_returns_what_the_command_wrote(tmp_path: Path) -> None:
    async with (
        serving(shell, tmp_path) as config,
        WsApiClient(kubernetes_asyncio.configuration(config)) as client,
    ):
        api: Any = CoreV1Api(client)  # its types know only one word as the command
        output = await api.connect_get_namespaced_pod_exec(
            "one", "team", command=["echo", "a b"], stdout=True, stderr=True, stdin=False, tty=False
        )
    assert output == "echo a b!"


async def terminal(request: web.Request) -> web.StreamResponse:
    """Answer as a container: the command says what happens."""
    offered = request.headers["Sec-WebSocket-Protocol"]
    command, *words = request.query.getall("command")
    request.app[ASKED].append(offered)
    if command == "refuse" or (command == "old" and offered != "v4.channel.k8s.io"):
        raise web.HTTPForbidden(text="no")
    socket = web.WebSocketResponse(protocols=[offered])
    await socket.prepare(request)
    if command == "cat":
        async for message in socket:
            if message.data in (b"\0", b"\xff\0"):
                break
            await socket.send_bytes(bytes([message.data[0] & 1 or 1]) + message.data)
    if command == "gone":
        await socket.close()
        return socket
    await socket.send_bytes(b"\1")
    await socket.send_bytes(b"\x09unknown")
    await socket.send_str("\2error")
    await socket.send_bytes(b"\3" + (words[0] if words else '{"status": "Success"}').encode())
    await socket.close()
    return socket


async def run(config: Config, *command: str, **options: Any) -> tuple[int | None, list[tuple[int, bytes]]]:
    async with kubernetes_asyncio.execute(config, ("team", "one"), command, **options) as running:
        with anyio.fail_after(30):
            found = [each async for each in running.output()]
    return running.exit_code, found


def ended(**fields: Any) -> str:
    return json.dumps({"status": "Failure", "reason": "NonZeroExitCode", **fields})


async def test_a_command_returns_its_output_and_its_exit_code(tmp_path: Path) -> None:
    code = ended(details={"causes": [{"reason": "other"}, {"reason": "ExitCode", "message": "7"}]})
    async with serving(terminal, tmp_path) as config:
        assert await run(config, "run") == (0, [(2, b"error")])
        assert await run(config, "run", code, container="node", tty=True) == (7, [(2, b"error")])
        assert await run(config, "old") == (0, [(2, b"error")])


@pytest.mark.parametrize(
    "status",
    [
        "no JSON",
        "[]",
        "[" * 10_000,
        "{}",
        ended(),
        ended(details={"causes": "many"}),
        ended(
            details={"causes": [{"reason": "ExitCode", "message": "x"}, {"reason": "ExitCode", "message": 3}]}
        ),
        json.dumps({"status": "Failure", "message": "container not found", "code": 404}),
    ],
)
async def test_a_status_without_an_exit_code_is_an_error(tmp_path: Path, status: str) -> None:
    async with serving(terminal, tmp_path) as config:
        with pytest.raises(ctrl.StatusError):
            await run(config, "run", status)


async def test_a_command_that_cannot_be_run_is_an_error(tmp_path: Path) -> None:
    async with serving(terminal, tmp_path) as config:
        with pytest.raises(ctrl.ForbiddenError, match=r"exec in pod team/one was answered with 403"):
            await run(config, "refuse")
        with pytest.raises(rest.TransportError, match="ended before the command"):
            await run(config, "gone")
    with pytest.raises(rest.ConnectError):
        await run(config, "run")


@pytest.mark.parametrize("protocol", ["v5.channel.k8s.io", "v4.channel.k8s.io"])
async def test_a_command_gets_input_its_end_and_the_size_of_the_terminal(
    tmp_path: Path, protocol: str
) -> None:
    async with (
        serving(terminal, tmp_path) as config,
        kubernetes_asyncio.execute(
            config, ("team", "one"), ["cat"], stdin=True, tty=True, protocols=[protocol]
        ) as running,
    ):
        await running.write(b"hello")
        await running.resize(80, 24)
        await running.close_input()
        found = [data async for _, data in running.output()]
        await running.write(b"lost")
    assert found == [b"\0hello", b'\x04{"Width":80,"Height":24}', b"error"]


async def failing(request: web.Request) -> web.StreamResponse:
    """Fail in the way that the last part of the path names."""
    match request.path.rpartition("/")[2]:
        case "redirect":
            raise web.HTTPFound("https://elsewhere.test/")
        case "slow":
            await anyio.sleep(60)
        case "large":
            return web.Response(body=b" " * (1 << 25), content_type="application/json")
        case "half":
            answer = web.StreamResponse(headers={"Content-Length": "9", "Content-Type": "application/json"})
            await answer.prepare(request)
            await answer.write(b"{}")
            request.transport.abort()  # type: ignore[union-attr]  # it is connected
            return answer
        case "busy":
            request.app[ASKED].append(request.path)
            if len(request.app[ASKED]) == 1:
                return web.Response(status=429, headers={"Retry-After": "0"})
    return web.Response(text="{}", content_type="application/json")


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        ("redirect", rest.AnswerError, "it redirects to 'https://elsewhere.test/'"),
        ("slow", rest.TransportTimeoutError, "no response to GET /slow in time"),
        ("large", rest.AnswerError, "the response is longer than 16777216 bytes"),
        ("half", rest.TransportError, "not completed|payload|closed"),
    ],
)
async def test_what_goes_wrong_with_their_session_is_an_error_of_ours(
    tmp_path: Path, name: str, error: type[Exception], text: str
) -> None:
    async with (
        serving(failing, tmp_path) as config,
        ApiClient(kubernetes_asyncio.configuration(config)) as client,
    ):
        request = rest.Request("GET", f"/{name}", timeout=0.5 if name == "slow" else 30)
        with pytest.raises(error, match=text):
            await (await kubernetes_asyncio.transport(client).send(request)).raise_for_status()


async def test_streams_that_break_requests_that_are_sent_again_and_closed_clients(tmp_path: Path) -> None:
    async with serving(failing, tmp_path) as config:
        async with ApiClient(kubernetes_asyncio.configuration(config)) as client:
            transport = kubernetes_asyncio.transport(client)
            assert (await transport.send(rest.Request("GET", "/busy"))).status == 200
            response = await transport.send(rest.Request("GET", "/half", stream=True))
            with pytest.raises(rest.TransportError):
                [line async for line in response.lines()]
            await response.close()
            with pytest.raises(rest.TransportTimeoutError):
                await transport.send(rest.Request("GET", "/slow", stream=True, timeout=0.2))
        with pytest.raises(rest.TransportError, match="the ApiClient is closed"):
            await transport.send(rest.Request("GET", "/ok"))
    async with ApiClient(kubernetes_asyncio.configuration(config)) as client:
        with pytest.raises(rest.ConnectError):
            await kubernetes_asyncio.transport(client).send(rest.Request("GET", "/ok"))


async def test_a_connection_that_is_not_made_in_time_means_that_nothing_was_sent() -> None:
    ended = anyio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read()  # and no TLS handshake
        writer.close()
        ended.set()

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        host = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with ApiClient(Configuration(host=host)) as client:
            request = rest.Request("PUT", "/x", body=b"{}", timeout=0.3)
            with pytest.raises(rest.ConnectTimeoutError, match=f"^{host}: no connection for PUT /x in time$"):
                await kubernetes_asyncio.transport(client).send(request)
        await ended.wait()


def test_their_session_says_that_it_belongs_to_another_loop() -> None:
    request = rest.Request("GET", "/ok")

    async def refused() -> rest.RoundTripper:
        async with ApiClient(Configuration(host="http://127.0.0.1:1")) as client:
            made = kubernetes_asyncio.transport(client)
            with pytest.raises(rest.ConnectError):
                await made.send(request)
        return made

    transport = asyncio.run(refused())
    with pytest.raises(
        RuntimeError, match=r"^the ApiClient was used in another event loop: make one in each"
    ):
        asyncio.run(transport.send(request))


async def test_a_login_of_theirs_that_fails_is_an_error_of_ours() -> None:
    async def renew(_: Configuration) -> None:
        raise RuntimeError("the plugin\nfailed")

    configuration = Configuration(host="https://127.0.0.1:1", api_key={"BearerToken": "old"})
    configuration.refresh_api_key_hook = renew
    async with ApiClient(configuration) as client:
        with pytest.raises(rest.TransportError, match=r"127.0.0.1:1: the login failed: the plugin"):
            await kubernetes_asyncio.transport(client).send(rest.Request("GET", "/ok"))
