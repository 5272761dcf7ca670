# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The library beside kubernetes-asyncio: kinds from its models, our login for its clients, its login for our client.

:func:`execute` runs a command in a container by its client for WebSocket.

kubernetes-asyncio is the extra ``controller-runtime[kubernetes-asyncio]``, because operators do not need it, and its
import loads more than a thousand generated modules (30 MiB). It is for programs that come from that client, or that use
its exec and attach.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final, ForwardRef, Self
from urllib.parse import unquote, urlsplit

import anyio
import msgspec
import pydantic

try:
    import aiohttp
    import yarl
    from kubernetes_asyncio.client import ApiClient, Configuration, CoreV1Api, models
    from kubernetes_asyncio.stream import WsApiClient
except ModuleNotFoundError as error:
    text = f"{error}; install controller-runtime[kubernetes-asyncio]"
    raise ModuleNotFoundError(text, name=error.name) from error

from controller_runtime import rest
from controller_runtime.apis.meta.v1 import Condition, LabelSelector, ObjectMeta
from controller_runtime.machinery import JSON, Object, Struct
from controller_runtime.machinery.errors import from_status, one_line
from controller_runtime.machinery.meta import format_micro_time
from controller_runtime.rest import layers

_PREFIX: Final = re.compile(r".*?V\d+(?:(?:alpha|beta)\d+)?(?=[A-Z])")
"""What the name of a model has before the name of the kind, as in ``CoreV1Event`` and ``V1beta1DeviceClass``."""
_LOGIN: Final = "BearerToken"
"""The login that all methods of the generated APIs ask for."""
_PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")
"""The protocols of exec. Kubernetes 1.30 and later know v5, which is v4 with a message that closes the input."""
_STDIN, _STDOUT, _STDERR, _ERROR, _RESIZE, _CLOSE = 0, 1, 2, 3, 4, 255
"""The first byte of each message."""
_CONNECT_SECONDS: Final = 30.0
_HEARTBEAT_SECONDS: Final = 30.0


def kind(
    model: type[object], *, group: str = "", version: str, plural: str, namespaced: bool = True
) -> type[Any]:
    """Return the kind with the fields of a model, such as ``V1Ingress``. Equal calls return the same class.

    Attributes have the names of the model's, but a leading underscore becomes a trailing one, which is also added to
    names that the class itself uses. All fields are optional. The structs ``ObjectMeta``, ``LabelSelector`` and
    ``Condition`` are those of the library, so that its functions accept them. Times in other structs are ``datetime``.

    Raises:
        TypeError: the model is not one of a kind.
    """
    fields = getattr(model, "openapi_types", {})
    if "kind" not in fields or fields.get("metadata") != models.V1ObjectMeta.__name__:
        raise TypeError(f"{model.__name__} is not the model of a kind: it lacks kind or V1ObjectMeta")
    return _kind(model, group, version, plural, namespaced)  # type: ignore[arg-type]  # a class is hashable


@lru_cache(maxsize=1024)
def _kind(model: Any, group: str, version: str, plural: str, namespaced: bool) -> type[Object]:
    names = {"group": group, "version": version, "plural": plural, "namespaced": namespaced}
    return _made(model, Object, _PREFIX.sub("", model.__name__, count=1), names)


@lru_cache(maxsize=4096)
def _struct(model: Any) -> type[Struct]:
    return _SHARED.get(model) or _made(model, Struct, model.__name__, {})


def _made(model: type[Any], base: type[Any], name: str, keywords: dict[str, Any]) -> type[Any]:
    fields: dict[str, Any] = {}
    for attribute, text in model.openapi_types.items():
        ours = f"{attribute.lstrip('_')}_" if attribute.startswith("_") else attribute
        if ours in base.__pydantic_fields__:  # the API version, kind and metadata of an object
            continue
        ours = f"{ours}_" if hasattr(base, ours) else ours
        wire = pydantic.Field(default=None, alias=model.attribute_map[attribute])
        # A model may contain itself: it is then named, because the class does not exist yet.
        fields[ours] = (_type(text, model.__name__, name) | None, wire)
    made: type[Any] = pydantic.create_model(
        name, __base__=base, __module__=__name__, __cls_kwargs__=keywords, **fields
    )
    return made


def _type(text: str, model: str, own: str) -> Any:
    """Return the type that a model writes as ``text``; ``own`` is the name of the class that is made of ``model``."""
    if text.startswith("list["):
        return list[_type(text[len("list[") : -1], model, own)]  # type: ignore[misc]  # a type of the model's
    if text.startswith("dict("):
        return dict[str, _type(text.partition(", ")[2][:-1], model, own)]  # type: ignore[misc]  # as above
    if text == model:
        return ForwardRef(own)
    if text in _TYPES:
        return _TYPES[text]
    nested = getattr(models, text, None)
    return JSON if nested is None else _struct(nested)  # some models name types that the package lacks


def _write_time(moment: datetime) -> str:
    if moment.tzinfo is None:
        raise ValueError(f"the time {moment} has no time zone; write datetime.now(UTC), for instance")
    return format_micro_time(moment)


# The models have the same type for a Time and a MicroTime. Go accepts a Time with microseconds, but no MicroTime
# without them.
_TYPES: Final[Mapping[str, Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "object": JSON,
    "datetime": Annotated[datetime, pydantic.PlainSerializer(_write_time, return_type=str, when_used="json")],
}
_SHARED: Final[Mapping[type[Any], type[Struct]]] = {
    models.V1ObjectMeta: ObjectMeta,
    models.V1LabelSelector: LabelSelector,
    models.V1Condition: Condition,
}


def configuration(config: rest.Config) -> Configuration:
    """Return a Configuration with the server, TLS settings, proxy and credentials of ``config``.

    The credentials are asked for their headers before each request, so they are renewed as those of our client are, and
    a renewal serves both. Copies of the Configuration share them. Certificates that are in memory stay there.

    An ApiClient reads certificates only when it is made: make another one after a client certificate was renewed.

    Raises:
        ConfigError: ``config`` impersonates a user, which a Configuration cannot.
    """
    if config.impersonate is not None:
        raise rest.ConfigError(
            "a Configuration cannot impersonate a user: leave impersonate out, and set its headers with "
            "ApiClient.set_default_header"
        )
    return _Configuration(config)


class _Configuration(Configuration):
    """A Configuration that reads credentials and client certificates from a Config when they are needed."""

    def __init__(self, config: rest.Config) -> None:
        self._config = config
        self._ca: rest.PrivateFile | None = None
        self._pair: rest.PrivateFile | None = None
        super().__init__(host=config.address.rstrip("/"))
        self.proxy = config.proxy or None
        self.disable_strict_ssl_verification = True  # as in TLSConfig
        address = urlsplit(config.host)
        self._login: rest.Credentials = config.credentials
        if isinstance(config.credentials, rest.Anonymous) and address.username is not None:
            self._login = rest.Basic(unquote(address.username), unquote(address.password or ""))
        if (tls := config.tls) is None:
            return
        self.verify_ssl = tls.verify
        self.tls_server_name = tls.server_name or None
        self._ca = rest.PrivateFile(tls.ca) if isinstance(tls.ca, bytes) else None
        self.ssl_ca_cert = self._ca.path if self._ca is not None else str(tls.ca) if tls.ca else None

    @property
    def cert_file(self) -> str | None:
        """The file with the client certificate that is valid now."""
        tls = self._config.tls
        if tls is None or (tls.issued is None and (tls.cert is None or tls.key is None)):
            return None
        cert, key = (tls.cert, tls.key) if tls.issued is None else (tls.issued.cert, tls.issued.key)
        pem = b"\n".join(part.read_bytes() if isinstance(part, Path) else part or b"" for part in (cert, key))
        if self._pair is None or self._pair.content != pem:
            self._pair = rest.PrivateFile(pem)
        return self._pair.path

    @cert_file.setter
    def cert_file(self, value: str | None) -> None:
        if value is not None:
            raise AttributeError("the client certificate comes from the Config")

    key_file = cert_file

    async def auth_settings(self) -> dict[str, dict[str, str]]:
        """Return the header that authenticates a request sent now.

        Raises:
            ConfigError: no credentials can be obtained, or they have a header that an ApiClient cannot send.
        """
        headers = await self._login.headers()
        if unknown := headers.keys() - {"Authorization"}:
            raise rest.ConfigError(f"an ApiClient sends only the header Authorization, not {min(unknown)}")
        header = {"type": "api_key", "in": "header", "key": "authorization"}
        return {_LOGIN: header | {"value": headers["Authorization"]}} if headers else {}

    def __deepcopy__(self, memo: Any) -> Self:
        for shared in (self._config, self._login, self._ca, self._pair):
            memo[id(shared)] = shared
        copied: Self = super().__deepcopy__(memo)
        return copied


def transport(api_client: ApiClient) -> rest.RoundTripper:
    """Return a transport for a LiveClient or a cache that sends requests with the session and login of ``api_client``.

    The caller closes ``api_client``. Redirects are not followed. As with our own transport, warnings of the server are
    logged, and requests are sent again when the server asks for that.
    """
    return _SessionTransport(layers.Warn(_Session(api_client)))


class _SessionTransport(layers.RetryAfter):
    over_network: Final = True


class _Session:
    """The innermost round tripper: the aiohttp session of an ApiClient."""

    def __init__(self, api_client: ApiClient) -> None:
        self._client = api_client
        self._loop: asyncio.AbstractEventLoop | None = None

    async def send(self, request: rest.Request) -> rest.Response:
        self._loop = self._loop or asyncio.get_running_loop()
        if self._loop is not asyncio.get_running_loop():
            raise RuntimeError("the ApiClient was used in another event loop: make one in each loop")
        host = (self._client.configuration.host or "").rstrip("/")
        session = self._client.rest_client
        headers = {**self._client.default_headers, "Accept-Encoding": "identity", **request.headers}
        if self._client.cookie:
            headers["Cookie"] = self._client.cookie
        try:
            await self._client.update_params_for_auth(headers, [], [_LOGIN])
        except Exception as error:  # the hook that renews the login may raise anything
            raise rest.TransportError(f"the login failed: {one_line(error)}", host=host) from error
        if session.pool_manager.closed:
            raise rest.TransportError("the ApiClient is closed", host=host)
        seconds, bounds = request.timeout, request.bounds
        limits = aiohttp.ClientTimeout()  # without limits: a stream lasts
        if not request.stream:
            limits = aiohttp.ClientTimeout(total=bounds.seconds, connect=seconds, sock_read=seconds)
        options: dict[str, Any] = (
            {"server_hostname": session.server_hostname} if session.server_hostname else {}
        )
        with _errors(host, request), anyio.fail_after(seconds if request.stream else None):
            answer = await session.pool_manager.request(
                request.method,
                yarl.URL(host + request.target, encoded=True),
                headers=headers,
                data=request.body,
                timeout=limits,
                allow_redirects=False,
                proxy=session.proxy,
                proxy_headers=session.proxy_headers,
                **options,
            )
        if request.stream:
            return _Stream(answer, host, request)
        with _errors(host, request):
            async with answer:
                body = await _body(answer, host, bounds)
                return rest.CompleteResponse(answer.status, body, answer.headers, host=host)


async def _body(answer: aiohttp.ClientResponse, host: str, bounds: Any) -> bytes:
    """Return the body, or nothing if it is longer than ``bounds`` but may be."""
    pieces, length, most = [], 0, max(bounds.size, bounds.unread if answer.status < 400 else 0)
    async for piece in answer.content.iter_any():
        pieces.append(piece)
        length += len(piece)
        if length > bounds.size:
            pieces.clear()
        if length > most:
            raise rest.AnswerError(f"the response is longer than {most} bytes", host=host)
    return b"".join(pieces)


class _Stream(rest.StreamResponse):
    def __init__(self, answer: aiohttp.ClientResponse, host: str, request: rest.Request) -> None:
        self.status, self.headers, self.host = answer.status, answer.headers, host
        self._answer = answer
        self._request = request

    async def pieces(self) -> AsyncIterator[bytes]:
        with _errors(self.host, self._request):
            async for piece in self._answer.content.iter_any():
                yield piece

    async def close(self) -> None:
        # aiohttp would wait in the background until the server has closed TLS, too.
        if (connection := self._answer.connection) is not None and connection.transport is not None:
            connection.transport.abort()
        self._answer.close()


@contextmanager
def _errors(host: str, request: rest.Request) -> Iterator[None]:
    """Convert the errors of aiohttp."""
    try:
        yield
    except aiohttp.ConnectionTimeoutError as error:
        text = f"no connection for {request.method} {request.path} in time"
        raise rest.ConnectTimeoutError(text, host=host) from error
    except TimeoutError as error:
        text = f"no response to {request.method} {request.path} in time"
        raise rest.TransportTimeoutError(text, host=host) from error
    except aiohttp.ClientConnectorError as error:
        raise rest.ConnectError(one_line(error), host=host) from error
    except (aiohttp.ClientError, OSError) as error:
        raise rest.TransportError(one_line(error), host=host) from error


class Execution:
    """A command that runs in a container. :func:`execute` makes it."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, protocol: str, host: str) -> None:
        self._socket = socket
        self._protocol = protocol
        self._host = host
        self.exit_code: int | None = None
        """The exit code of the command, once :meth:`output` has ended."""

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        """Yield the output until the command has ended: 1 for standard output or 2 for standard error, and the bytes.

        With a terminal, everything is output.

        Raises:
            StatusError: the command could not be run.
            TransportError: the connection was lost, and the exit code is not known.
        """
        async for message in self._socket:
            if message.type not in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT):
                break
            data = message.data.encode() if isinstance(message.data, str) else message.data
            if data[:1] in (b"\1", b"\2") and len(data) > 1:
                yield data[0], data[1:]
            elif data[:1] == bytes([_ERROR]):
                self.exit_code = _exit_code(data[1:])
                return
        raise rest.TransportError("the connection ended before the command", host=self._host)

    async def write(self, data: bytes) -> None:
        """Send bytes to the standard input of the command. If the command has ended, they are lost."""
        await self._send(bytes([_STDIN]) + data)

    async def close_input(self) -> None:
        """End the standard input of the command.

        A server that knows only v4 of the protocol cannot pass this on: a command that reads until the end of its input
        then does not end.
        """
        await self._send(bytes([_CLOSE, _STDIN]) if self._protocol == _PROTOCOLS[0] else bytes([_STDIN]))

    async def resize(self, width: int, height: int) -> None:
        """Set the size of the terminal, in characters."""
        await self._send(bytes([_RESIZE]) + msgspec.json.encode({"Width": width, "Height": height}))

    async def _send(self, message: bytes) -> None:
        try:
            await self._socket.send_bytes(message)
        except (aiohttp.ClientError, ConnectionError):
            return  # output() raises the error of the connection


def _exit_code(status: bytes) -> int:
    """Return the exit code in a status.

    Raises:
        StatusError: the command did not run.
    """
    try:
        result = msgspec.json.decode(status, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        result = {"message": one_line(status.decode(errors="replace"))}
    if result.get("status") == "Success":
        return 0
    error = from_status(result, http_code=500)
    for cause in error.causes if error.reason == "NonZeroExitCode" else ():
        text = cause.get("message")
        if cause.get("reason") == "ExitCode" and isinstance(text, str) and re.fullmatch(r"\d{1,9}", text):
            return int(text)
    raise error


@asynccontextmanager
async def execute(
    config: rest.Config,
    pod: tuple[str, str],
    command: Sequence[str],
    *,
    container: str | None = None,
    stdin: bool = False,
    tty: bool = False,
    protocols: Sequence[str] = _PROTOCOLS,
) -> AsyncIterator[Execution]:
    """Run a command in a container of ``pod``, which is a namespace and a name.

    At the end of the ``async with`` statement, the connection is closed. If the command has not ended then, some
    container runtimes leave it running. ``protocols`` are tried in this order.

    Raises:
        ConfigError: a Configuration cannot be made of ``config``.
        StatusError: the server has refused to run a command. Its message has the code, but not the text of the server.
        TransportError: the server cannot be reached.
    """
    host = config.address
    async with AsyncExitStack() as stack:
        client = WsApiClient(configuration(config), heartbeat=_HEARTBEAT_SECONDS)
        await stack.enter_async_context(client)
        api: Any = CoreV1Api(
            client
        )  # its types know neither a list as the command, nor a socket as the result
        options = {"container": container} if container else {}
        for protocol in protocols:
            client.set_default_header("sec-websocket-protocol", protocol)
            try:
                with anyio.fail_after(_CONNECT_SECONDS):
                    opened = await api.connect_get_namespaced_pod_exec(
                        pod[1],
                        pod[0],
                        command=list(command),
                        stdin=stdin,
                        stdout=True,
                        stderr=not tty,
                        tty=tty,
                        _preload_content=False,
                        **options,
                    )
                    socket = await stack.enter_async_context(opened)
            except aiohttp.WSServerHandshakeError as error:
                if protocol != protocols[-1]:
                    continue  # an older server refuses a protocol that it does not know
                text = f"exec in pod {pod[0]}/{pod[1]} was answered with {error.status}"
                raise from_status({"message": text, "code": error.status}, http_code=error.status) from error
            except TimeoutError as error:
                raise rest.TransportTimeoutError("no response to exec in time", host=host) from error
            except aiohttp.ClientConnectorError as error:
                raise rest.ConnectError(one_line(error), host=host) from error
            except (aiohttp.ClientError, OSError) as error:
                raise rest.TransportError(one_line(error), host=host) from error
            yield Execution(socket, protocol, host)
            return
