# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The logins of kubeconfigs, as in client-go: an exec plugin, and an OpenID Connect issuer that renews an ID token."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import subprocess
from collections.abc import AsyncIterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import quote_plus, urlencode, urlsplit

import anyio
import msgspec

from controller_runtime import log
from controller_runtime.machinery import JSON, rawjson
from controller_runtime.machinery.errors import BadRequestError, UnauthorizedError
from controller_runtime.machinery.printable import printable_line

from . import http1, proxy
from .config import Config
from .credentials import Anonymous, Issued
from .errors import ConfigError, RestError, decoded
from .request import Request
from .tls import IssuedPair, TLSConfig
from .transport import Transport

_log: Final = log.logger_from("rest")
UNTOLD_WAIT: Final = 5.0
"""A login that takes longer is logged."""
_LONGEST_RUN: Final = 300.0
"""Seconds that a plugin may take; it may wait for a person to log in."""
_LONGEST_OUTPUT: Final = 1 << 20
"""Maximum number of bytes that a plugin may write."""
_LONGEST_HINT: Final = 1000
"""Maximum number of characters of an ``installHint`` that are shown."""


class _Status(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


async def run_plugin(
    plugin: Mapping[str, JSON], cluster: Mapping[str, JSON] | None, *, limit: float = _LONGEST_RUN
) -> Issued:
    """Run the exec plugin and return what it issued. ``cluster`` is passed to the plugin.

    The plugin shares the standard error of this process, so users see its prompts. If it does not end within ``limit``
    seconds, it is killed.

    Raises:
        ConfigError: the plugin cannot be run or failed, or its output is not valid.
    """
    told = asyncio.get_running_loop().call_later(
        UNTOLD_WAIT,
        lambda: _log.warning("Waiting for the login plugin", command=plugin["command"], limit=limit),
    )
    try:
        with anyio.fail_after(limit):
            return _issued(await _output(plugin, cluster), plugin["apiVersion"])
    except TimeoutError as error:
        raise ConfigError(f"exec {plugin['command']}: it did not end within {limit:g} s") from error
    except OSError as error:
        raise ConfigError(f"exec {plugin['command']}: {_reason(plugin, error)}") from error
    except (ConfigError, ValueError) as error:  # a ValueError is about a null byte or the name of a variable
        raise ConfigError(f"exec {plugin['command']}: {error}") from error
    finally:
        told.cancel()


def _reason(plugin: Mapping[str, JSON], error: OSError) -> str:
    """Return why a plugin could not be run, and how to install it."""
    text = error.strerror or str(error)
    if isinstance(error, FileNotFoundError) and Path(plugin["command"]).exists():
        text = "the interpreter in its first line does not exist"
    return text + _install_hint(plugin)


def _install_hint(plugin: Mapping[str, JSON]) -> str:
    """Return the hint of the kubeconfig how to install a missing plugin, as the end of a message."""
    hint = plugin.get("installHint")
    text = printable_line(" ".join(hint[:_LONGEST_HINT].split())) if isinstance(hint, str) else ""
    return f": {text}" if text else ""


async def _output(plugin: Mapping[str, JSON], cluster: Mapping[str, JSON] | None) -> bytes:
    mode, terminal = plugin.get("interactiveMode"), os.isatty(0)
    if mode == "Always" and not terminal:
        raise ConfigError("interactiveMode is Always, but the standard input is not a terminal")
    interactive = terminal and mode != "Never"
    spec = {"interactive": interactive} | ({} if cluster is None else {"cluster": cluster})
    request = {"kind": "ExecCredential", "apiVersion": plugin["apiVersion"], "spec": spec}
    environ = {**os.environ, **{each["name"]: each["value"] for each in plugin.get("env") or ()}}
    environ["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(request).decode()
    async with await anyio.open_process(
        [plugin["command"], *(plugin.get("args") or ())],
        stdin=None if interactive else subprocess.DEVNULL,
        stderr=None,
        env=environ,
        start_new_session=not interactive,  # in another session, it could not read from the terminal
    ) as process:
        assert process.stdout is not None  # noqa: S101 -- it is a pipe
        try:
            output = await _all(process.stdout)
            code = await process.wait()
        except BaseException:
            if not interactive:
                # The plugin may be a script: its commands would keep the pipe open.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            raise
        if code:
            # A script's shell ends with these codes if a program that the script calls cannot be run.
            hint = _install_hint(plugin) if code in (126, 127) else ""
            raise ConfigError(f"failed with exit code {code}{hint}")
    return output


async def _all(stream: AsyncIterable[bytes]) -> bytes:
    output = b""
    async for piece in stream:
        output += piece
        if len(output) > _LONGEST_OUTPUT:
            raise ConfigError(f"its output is longer than {_LONGEST_OUTPUT} bytes")
    return output


def _issued(output: bytes, version: str) -> Issued:
    try:
        answer = msgspec.json.decode(output, type=_ExecCredential)
    except rawjson.UNREADABLE as error:
        raise ConfigError(f"its output is not an ExecCredential: {error}") from error
    if (answer.kind, answer.api_version) != ("ExecCredential", version):
        raise ConfigError(f"it returned {answer.api_version} {answer.kind}, not {version} ExecCredential")
    status = answer.status or _Status()
    token, cert, key = status.token or "", status.client_certificate_data, status.client_key_data
    if bool(cert) != bool(key):
        raise ConfigError(
            f"it returned a {'certificate without a key' if cert else 'key without a certificate'}"
        )
    if not token and not cert:
        raise ConfigError("it returned neither a token nor a certificate")
    pair = IssuedPair((cert or "").encode(), (key or "").encode())
    ends = [status.expiration_timestamp] if status.expiration_timestamp is not None else []
    try:
        ends += [pair.dates()[1]] if cert else []
    except ValueError as error:
        raise ConfigError(f"its certificate is invalid: {error}") from error
    return Issued(token, pair.cert, pair.key, min(ends, default=None))


class _Metadata(msgspec.Struct):
    token_endpoint: str


class _Tokens(msgspec.Struct):
    id_token: str
    refresh_token: str | None = None


class Issuer:
    """An OpenID Connect issuer, and how this client identifies itself to it. It must be reached by https."""

    def __init__(self, url: str, client_id: str, client_secret: str, tls: TLSConfig) -> None:
        self._url = url.rstrip("/")
        self._client = (client_id, client_secret)
        self._tls = tls

    async def renewed(self, refresh_token: str) -> tuple[str, str]:
        """Return a new ID token, and the refresh token to use next time.

        An issuer may accept a refresh token only once. So a cancellation takes effect after the issuer has answered:
        otherwise the next refresh token would be lost, and with it the login.

        Raises:
            ConfigError: an address of the issuer does not begin with https://.
            StatusError: the issuer refused the request.
            TransportError: the issuer did not send a valid response.
        """
        found = await self._ask(f"{self._url}/.well-known/openid-configuration")
        endpoint = decoded(msgspec.json.Decoder(_Metadata).decode, found).token_endpoint
        name, secret = self._client
        form = {"grant_type": "refresh_token", "refresh_token": refresh_token}
        basic = base64.b64encode(f"{quote_plus(name)}:{quote_plus(secret)}".encode()).decode()
        with anyio.CancelScope(shield=True):
            try:
                answer = await self._ask(endpoint, form, {"Authorization": f"Basic {basic}"})
            except (BadRequestError, UnauthorizedError):
                # Some issuers accept the client's name and secret only in the form.
                form |= {"client_id": name} | ({"client_secret": secret} if secret else {})
                answer = await self._ask(endpoint, form, {})
        tokens = decoded(msgspec.json.Decoder(_Tokens).decode, answer)
        return tokens.id_token, tokens.refresh_token or refresh_token

    async def _ask(
        self, url: str, form: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> bytes:
        address = urlsplit(url)
        if address.scheme != "https":
            raise ConfigError(
                f"the issuer's address {http1.without_credentials(url)!r} does not begin with https://"
            )
        host = f"https://{address.netloc}"
        target = address._replace(scheme="", netloc="", fragment="").geturl() or "/"
        request = Request("GET", target)
        if form is not None:
            sent = {"Content-Type": "application/x-www-form-urlencoded", **(headers or {})}
            request = Request("POST", target, headers=sent, body=urlencode(form).encode())
        config = Config(host, tls=self._tls, proxy=proxy.from_environment(host, os.environ))
        async with Transport(config) as transport:
            response = await transport.send(request)
            await response.raise_for_status()
            return await response.read()


def expiry(token: str) -> datetime:
    """Return when the ID token expires. A token that does not say so counts as expired.

    Raises:
        ConfigError: the text is not a JWT.
    """
    parts = token.split(".")
    try:
        payload = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        claims = msgspec.json.decode(payload, type=dict[str, JSON])
        return datetime.fromtimestamp(float(claims.get("exp") or 0), UTC)
    except (*rawjson.UNREADABLE, IndexError, TypeError, ValueError, OverflowError, OSError) as error:
        raise ConfigError("the ID token is not a valid JWT") from error


async def refused_because(config: Config) -> str:
    """Return why a server may refuse the credentials of ``config``, or an empty string if they look valid.

    Read are the dates of the client certificate and of the token, if the token is a JWT.
    """
    if problem := certificate_problem(config.tls):
        return problem
    try:
        token = (await config.credentials.headers()).get("Authorization", "").removeprefix("Bearer ")
    except RestError:
        return ""
    with suppress(ConfigError):
        if (end := expiry(token)) <= datetime.now(UTC) and end.timestamp() > 0:
            return f"the token expired on {end:%Y-%m-%d at %H:%M} UTC"
    presents_certificate = config.tls is not None and (config.tls.cert is not None or config.tls.issued)
    if type(config.credentials) is Anonymous and not presents_certificate:
        return "the configuration has neither a token nor a client certificate"
    return ""


def certificate_problem(tls: TLSConfig | None) -> str:
    """Return that the client certificate has expired or is not valid yet, or an empty string."""
    if tls is None:
        return ""
    try:
        cert = tls.issued.cert if tls.issued is not None else tls.cert
        pem = cert.read_bytes() if isinstance(cert, Path) else cert
        if not pem:
            return ""
        start, end = IssuedPair(pem, b"").dates()
    except (OSError, ValueError):
        return ""
    now = datetime.now(UTC)
    if end <= now:
        return f"the client certificate expired on {end:%Y-%m-%d at %H:%M} UTC"
    if start > now:
        return f"the client certificate is not valid before {start:%Y-%m-%d at %H:%M} UTC: check the clock"
    return ""
