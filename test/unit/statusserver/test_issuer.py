# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0

from typing import Any

import anyio
import pytest
from controller_runtime import rest

from pkg.statusserver import Issuer, tokens
from pkg.statusserver.issuer import IssuerError
from testkit.tokenissuer import Authority


def token(authority: Authority, key: str) -> tokens.Token:
    return tokens.parse(authority.sign(key, {"exp": 1}))


async def test_the_keys_are_read_once_for_many_tokens(authority: Authority) -> None:
    issuer = Issuer(authority.transport)

    for _ in range(3):
        known = await issuer.known(token(authority, "a"))
        assert known.signed(token(authority, "a"))

    assert [request.path for request in authority.transport.requests] == [
        "/.well-known/openid-configuration",
        "/openid/v1/jwks",
    ]


async def test_a_new_key_is_found_and_made_up_keys_cause_few_requests(authority: Authority) -> None:
    issuer = Issuer(authority.transport)
    await issuer.known(token(authority, "a"))
    authority.add("b")

    unknown = await issuer.known(token(authority, "b"))
    assert not unknown.signed(token(authority, "b"))
    await anyio.sleep(10)
    found = await issuer.known(token(authority, "b"))
    assert found.signed(token(authority, "b"))
    assert len(authority.transport.requests) == 4


async def test_a_withdrawn_key_is_not_accepted_for_long(authority: Authority) -> None:
    issuer = Issuer(authority.transport)
    authority.add("b")
    old = token(authority, "b")
    assert (await issuer.known(old)).signed(old)
    del authority.keys["b"]

    await anyio.sleep(301)

    assert not (await issuer.known(old)).signed(old)


async def test_known_keys_stay_while_the_server_is_unreachable(authority: Authority) -> None:
    issuer = Issuer(authority.transport)
    await issuer.known(token(authority, "a"))
    authority.broken = True
    await anyio.sleep(301)

    assert (await issuer.known(token(authority, "a"))).signed(token(authority, "a"))


async def test_a_slow_server_does_not_delay_tokens_whose_keys_are_known(authority: Authority) -> None:
    issuer = Issuer(authority.transport)
    await issuer.known(token(authority, "a"))
    await anyio.sleep(301)
    authority.seconds = 5
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(issuer.known, token(authority, "a"))
        await anyio.sleep(1)
        begun = anyio.current_time()

        assert (await issuer.known(token(authority, "a"))).signed(token(authority, "a"))

        assert anyio.current_time() == begun


async def test_failures_are_not_tried_again_for_every_token(authority: Authority) -> None:
    issuer = Issuer(authority.transport)
    authority.broken = True
    for _ in range(5):
        with pytest.raises(rest.TransportError):
            await issuer.known(token(authority, "a"))
    assert len(authority.transport.requests) == 1

    authority.broken = False
    await anyio.sleep(2)

    assert (await issuer.known(token(authority, "a"))).signed(token(authority, "a"))


async def test_without_an_issuer_no_token_is_accepted() -> None:
    issuer = Issuer(rest.FakeTransport(lambda _: rest.FakeResponse(body={"keys": []})))
    with pytest.raises(IssuerError, match="publishes no issuer"):
        await issuer.known(tokens.Token("", "", tokens.Claims()))


def test_keys_that_are_of_no_use_are_left_out() -> None:
    keys: list[dict[str, Any]] = [
        {"kty": "oct", "kid": "a"},
        {"kty": "EC", "kid": "b", "crv": "secp256k1", "x": "AQ", "y": "AQ"},
        {"kty": "EC", "kid": "c", "crv": "P-256", "x": "AQ", "y": "AQ"},
        {"kty": "RSA", "kid": "d", "n": "!", "e": "AQAB"},
        {"kty": "RSA", "kid": "e", "n": "", "e": ""},
        {"kty": "OKP", "kid": "f", "crv": "Ed25519", "x": "AQ"},
        {"kty": "oct", "kid": "g", "k": "c2VjcmV0"},
        {"kty": ["RSA"], "kid": {}},
    ]
    assert tokens.keys_of(keys) == []
