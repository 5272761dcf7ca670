# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""An OIDC user's ID token is used while it is valid, and its issuer renews it. Only a verified issuer gets secrets."""

import asyncio
import base64
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import anyio
import pytest
import yaml

from controller_runtime import rest
from controller_runtime.envtest import Authority
from ctrl_testkit.small import WriteKubeconfig as Write

pytestmark = pytest.mark.real_time


def jwt(**claims: Any) -> str:
    """Return a token with these claims. Its text contains the characters that base64 and base64url write differently."""
    parts = ({"alg": "none"}, {**claims, "name": "???~~~"})
    return (
        ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
        + ".c2ln"
    )


EXPIRED = jwt(exp=1)
VALID = jwt(exp=time.time() + 3600)


class Issuer:
    """An issuer on this machine. ``tokens`` is its answer to a refresh; ``forms`` holds the requests for one."""

    def __init__(self) -> None:
        self.url = ""
        self.tokens: dict[str, Any] = {"id_token": VALID}
        self.only_in_form = False
        self.status = 200
        self.forms: list[tuple[str, dict[str, list[str]]]] = []
        self.connections = 0
        self.asked: Callable[[], object] = lambda: None
        """Called when a request for tokens arrives."""

    def answer(self, head: str, body: str) -> tuple[int, dict[str, Any]]:
        if head.startswith("GET /realm/.well-known/openid-configuration "):
            return 200, {"token_endpoint": f"{self.url}/token?tenant=a"}
        assert head.startswith("POST /realm/token?tenant=a ")
        basic = head.partition("Authorization: Basic ")[2].partition("\r\n")[0]
        self.forms.append((base64.b64decode(basic).decode(), parse_qs(body)))
        if self.only_in_form and "client_id" not in self.forms[-1][1]:
            return 401, {"error": "invalid_client"}
        return self.status, self.tokens

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.partition("Content-Length: ")[2].partition("\r\n")[0] or 0)
        status, value = self.answer(head, (await reader.readexactly(length)).decode())
        if head.startswith("POST"):
            self.asked()
            await asyncio.sleep(0.1)
        text = json.dumps(value).encode()
        kind = b"Content-Type: application/json\r\nConnection: close"
        writer.write(b"HTTP/1.1 %d X\r\n%s\r\nContent-Length: %d\r\n\r\n%s" % (status, kind, len(text), text))
        await writer.drain()
        writer.close()


AUTHORITY = Authority.create("issuer-ca")


@pytest.fixture
async def issuer(tmp_path: Path) -> AsyncIterator[Issuer]:
    pair = AUTHORITY.server("issuer", ["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    rest.load_chain(context, pair.certificate, pair.key)
    (tmp_path / "issuer.crt").write_bytes(AUTHORITY.certificate)
    made = Issuer()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=context)
    made.url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/realm"
    yield made
    server.close()
    await server.wait_closed()


def user(issuer: Issuer, **settings: str) -> dict[str, Any]:
    config = {"idp-issuer-url": issuer.url, "client-id": "kube", "id-token": EXPIRED, "refresh-token": "r0"}
    config["idp-certificate-authority"] = "issuer.crt"
    return {"auth-provider": {"name": "oidc", "config": {**config, **settings}}}


async def test_a_valid_id_token_is_used_without_asking_the_issuer(write: Write, issuer: Issuer) -> None:
    config = await rest.load_config(str(write(**user(issuer, **{"id-token": VALID}))))
    assert await config.credentials.headers() == {"Authorization": f"Bearer {VALID}"}
    assert not await config.credentials.refresh()
    assert issuer.connections == 0


@pytest.mark.parametrize("inline", [False, True], ids=["file", "inline"])
async def test_an_expired_id_token_is_renewed_and_written_to_the_file(
    write: Write, issuer: Issuer, inline: bool
) -> None:
    issuer.tokens["refresh_token"] = "r1"
    settings = {"client-secret": "a b:c"}
    if inline:
        data = base64.b64encode(AUTHORITY.certificate).decode()
        settings |= {"idp-certificate-authority-data": data, "idp-certificate-authority": ""}
    path = write(**user(issuer, **settings))
    config = await rest.load_config(str(path))
    assert await config.credentials.headers() == {"Authorization": f"Bearer {VALID}"}
    assert issuer.forms == [("kube:a+b%3Ac", {"grant_type": ["refresh_token"], "refresh_token": ["r0"]})]
    (entry,) = yaml.safe_load(path.read_text())["users"]
    written = entry["user"]["auth-provider"]["config"]
    assert (written["id-token"], written["refresh-token"]) == (VALID, "r1")


async def test_a_renewal_that_is_cancelled_does_not_lose_the_next_refresh_token(
    write: Write, issuer: Issuer
) -> None:
    # A token counts as expired ten seconds before it expires.
    path = write(**user(issuer, **{"id-token": jwt(exp=time.time() + 11)}))
    config = await rest.load_config(str(path))
    await asyncio.sleep(1)
    issuer.tokens["refresh_token"] = "r1"
    with anyio.CancelScope() as scope:
        issuer.asked = scope.cancel
        await config.credentials.headers()
    (entry,) = yaml.safe_load(path.read_text())["users"]
    assert entry["user"]["auth-provider"]["config"]["refresh-token"] == "r1"
    assert await config.credentials.headers() == {"Authorization": f"Bearer {VALID}"}
    assert len(issuer.forms) == 1


async def test_a_client_may_have_no_secret_and_the_issuer_may_read_only_the_form(
    write: Write, issuer: Issuer
) -> None:
    issuer.only_in_form = True
    config = await rest.load_config(str(write(**user(issuer))))
    assert await config.credentials.headers() == {"Authorization": f"Bearer {VALID}"}
    form = {"grant_type": ["refresh_token"], "refresh_token": ["r0"], "client_id": ["kube"]}
    assert issuer.forms[-1] == ("", form)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        pytest.param({"idp-certificate-authority": ""}, "certificate verify failed", id="not verified"),
        pytest.param(
            {"idp-issuer-url": "http://jane:s3cret@127.0.0.1:1"}, "does not begin with https://", id="http"
        ),
        pytest.param({"refresh-token": ""}, "cannot refresh without refresh-token", id="no refresh token"),
        pytest.param({"id-token": "s3cret"}, "the ID token is not a valid JWT", id="no JWT"),
        pytest.param({"id-token": "a.W10.c"}, "the ID token is not a valid JWT", id="no claims"),
    ],
)
async def test_nothing_is_sent_if_the_issuer_or_the_settings_are_not_right(
    write: Write, issuer: Issuer, settings: dict[str, str], problem: str
) -> None:
    with pytest.raises(rest.ConfigError, match=f"user 'u': .*{problem}") as caught:
        await rest.load_config(str(write(**user(issuer, **settings))))
    assert issuer.forms == []
    assert "s3cret" not in str(caught.value)


async def test_an_answer_without_an_id_token_is_an_error(write: Write, issuer: Issuer) -> None:
    issuer.tokens = {"access_token": "s3cret"}
    with pytest.raises(rest.ConfigError, match="missing required field `id_token`") as caught:
        await rest.load_config(str(write(**user(issuer))))
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("status", [403, 429, 500, 503])
async def test_a_refresh_token_is_not_sent_again_to_an_issuer_that_may_have_used_it(
    write: Write, issuer: Issuer, status: int
) -> None:
    issuer.status = status
    with pytest.raises(rest.ConfigError):
        await rest.load_config(str(write(**user(issuer))))
    assert len(issuer.forms) == 1
