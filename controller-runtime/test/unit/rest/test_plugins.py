# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""An exec plugin runs once for all requests that wait for it, and again when its credentials expire or are refused."""

import dataclasses
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from controller_runtime import rest
from controller_runtime.envtest import Authority
from controller_runtime.rest import layers
from ctrl_testkit.small import WriteKubeconfig as Write


def plugin(tmp_path: Path, *statuses: dict[str, Any]) -> dict[str, Any]:
    """Write an exec plugin that returns one status after the other and repeats the last; return its configuration."""
    script = tmp_path / "plugin.py"
    script.write_text(
        "import json, pathlib, sys\n"
        f"count = pathlib.Path({str(tmp_path / 'count')!r})\n"
        "n = int(count.read_text()) if count.exists() else 0\n"
        "count.write_text(str(n + 1))\n"
        f"status = json.loads({json.dumps(json.dumps(statuses))})[min(n, {len(statuses) - 1})]\n"
        "kind = {'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential'}\n"
        "print(json.dumps({**kind, 'status': status}))\n"
    )
    return {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable, "args": [str(script)]}


@pytest.mark.real_time
async def test_a_plugin_is_asked_once_until_its_token_is_refused(write: Write, tmp_path: Path) -> None:
    expiry = "2999-01-01T00:00:00Z"
    first, second = ({"token": token, "expirationTimestamp": expiry} for token in ("one", "two"))
    config = await rest.load_config(str(write(exec=plugin(tmp_path, first, second))))
    assert await config.credentials.headers() == {"Authorization": "Bearer one"}
    assert await config.credentials.headers() == {"Authorization": "Bearer one"}
    assert (tmp_path / "count").read_text() == "1"
    assert await config.credentials.refresh()
    assert await config.credentials.headers() == {"Authorization": "Bearer two"}
    assert not await config.credentials.refresh()


@pytest.mark.real_time
async def test_a_plugins_token_is_renewed_when_it_has_expired(write: Write, tmp_path: Path) -> None:
    statuses = [{"token": t, "expirationTimestamp": "2001-01-01T00:00:00Z"} for t in ("one", "two")]
    config = await rest.load_config(str(write(exec=plugin(tmp_path, *statuses))))
    assert await config.credentials.headers() == {"Authorization": "Bearer two"}


@pytest.mark.real_time
async def test_a_plugin_sees_the_variables_of_its_entry(write: Write, tmp_path: Path) -> None:
    kind = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
    script = f"import json, os; print(json.dumps({kind} | {{'status': {{'token': os.environ['WORD']}}}}))"
    made = {
        "apiVersion": kind["apiVersion"],
        "command": sys.executable,
        "args": ["-c", script],
        "env": [{"name": "WORD", "value": "secret"}],
    }
    config = await rest.load_config(str(write(exec=made)))
    assert await config.credentials.headers() == {"Authorization": "Bearer secret"}


@pytest.mark.real_time
async def test_a_plugin_may_issue_a_certificate(write: Write, tmp_path: Path) -> None:
    pair = Authority.create("ca").client("me")
    status = {"clientCertificateData": pair.certificate.decode(), "clientKeyData": pair.key.decode()}
    path = write(cluster={"server": "https://c.test"}, exec=plugin(tmp_path, status))
    config = await rest.load_config(str(path))
    assert config.tls is not None
    assert (config.tls.cert, config.tls.key) == (pair.certificate, pair.key)


@pytest.mark.real_time
async def test_requests_that_find_a_token_expired_together_run_its_plugin_once(
    write: Write, tmp_path: Path
) -> None:
    gone = "2020-01-01T00:00:00Z"
    statuses = [{"token": "one", "expirationTimestamp": gone}, {"token": "two", "expirationTimestamp": gone}]
    path = write(cluster={"server": "https://c.test"}, exec=plugin(tmp_path, *statuses))
    config = await rest.load_config(str(path))
    sent = list[str]()

    async def send(request: rest.Request) -> rest.FakeResponse:
        sent.append(request.headers["Authorization"])
        return rest.FakeResponse(200)

    outermost = layers.Authorize(rest.FakeTransport(send), config.credentials, config.host)
    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(outermost.send, rest.Request("GET", "/version"))
    assert sent == ["Bearer two"] * 50
    assert (tmp_path / "count").read_text() == "2"


@pytest.mark.real_time
async def test_two_transports_that_are_refused_together_run_a_plugin_once(
    write: Write, tmp_path: Path
) -> None:
    path = write(
        cluster={"server": "https://c.test"}, exec=plugin(tmp_path, {"token": "one"}, {"token": "two"})
    )
    config = await rest.load_config(str(path))

    async def send(request: rest.Request) -> rest.FakeResponse:
        return rest.FakeResponse(200 if request.headers["Authorization"] == "Bearer two" else 401)

    pair = [layers.Authorize(rest.FakeTransport(send), config.credentials, config.host) for _ in range(2)]
    answers = list[int]()

    async def ask(through: layers.Authorize) -> None:
        answers.append((await through.send(rest.Request("GET", "/version"))).status)

    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(ask, pair[number % 2])
    assert answers == [200] * 50
    assert (tmp_path / "count").read_text() == "2"


@pytest.mark.real_time
async def test_a_plugin_that_fails_fails_once_for_all_who_wait_and_runs_again_for_the_next(
    write: Write, tmp_path: Path
) -> None:
    status = {"token": "one", "expirationTimestamp": "2020-01-01T00:00:00Z"}
    path = write(cluster={"server": "https://c.test"}, exec=plugin(tmp_path, status, {}))
    config = await rest.load_config(str(path))
    failures = list[str]()

    async def ask() -> None:
        with pytest.raises(rest.ConfigError) as caught:
            await config.credentials.headers()
        failures.append(str(caught.value))

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(ask)
    assert len(failures) == 20
    assert len(set(failures)) == 1
    assert (tmp_path / "count").read_text() == "2"
    await ask()
    assert (tmp_path / "count").read_text() == "3"


@pytest.mark.real_time
async def test_a_request_that_gives_up_leaves_the_plugin_to_the_next(write: Write, tmp_path: Path) -> None:
    statuses = [{"token": "one", "expirationTimestamp": "2020-01-01T00:00:00Z"}, {"token": "two"}]
    path = write(cluster={"server": "https://c.test"}, exec=plugin(tmp_path, *statuses))
    config = await rest.load_config(str(path))
    found = list[str]()

    async def ask() -> None:
        found.append((await config.credentials.headers())["Authorization"])

    async with anyio.create_task_group() as tasks:
        impatient = anyio.CancelScope()

        async def give_up() -> None:
            with impatient:
                await ask()

        tasks.start_soon(give_up)
        await anyio.lowlevel.checkpoint()
        tasks.start_soon(ask)
        await anyio.lowlevel.checkpoint()
        impatient.cancel()
    assert found == ["Bearer two"]


@pytest.mark.real_time
async def test_a_plugins_certificate_is_renewed_when_the_server_refuses_it(
    write: Write, tmp_path: Path
) -> None:
    pairs = [Authority.create("ca").client(user) for user in ("old", "new")]
    statuses = [
        {"clientCertificateData": pair.certificate.decode(), "clientKeyData": pair.key.decode()}
        for pair in pairs
    ]
    path = write(cluster={"server": "https://c.test"}, exec=plugin(tmp_path, *statuses))
    config = dataclasses.replace(await rest.load_config(str(path)), user_agent="a copy")
    assert config.tls is not None
    assert config.tls.issued is not None
    assert await config.credentials.headers() == {}
    assert config.tls.issued.cert == pairs[0].certificate
    assert await config.credentials.refresh()
    assert config.tls.issued.cert == pairs[1].certificate
    assert not await config.credentials.refresh()


@pytest.mark.real_time
async def test_a_plugins_certificate_is_renewed_when_it_has_run_out(write: Write, tmp_path: Path) -> None:
    pairs = [Authority.create("ca").client(user) for user in ("old", "new")]
    statuses = [
        {"clientCertificateData": pair.certificate.decode(), "clientKeyData": pair.key.decode()}
        for pair in pairs
    ]
    path = write(cluster={"server": "https://c.test"}, exec=plugin(tmp_path, *statuses))
    config = await rest.load_config(str(path))
    issued = config.tls.issued if config.tls is not None else None
    assert issued is not None
    await config.credentials.headers()
    assert issued.cert == pairs[0].certificate
    config.credentials._expiry = datetime.now(UTC)  # type: ignore[attr-defined] # a plugin's
    await config.credentials.headers()
    assert issued.cert == pairs[1].certificate


@pytest.mark.real_time
async def test_a_plugin_that_fails_is_named(write: Write) -> None:
    path = write(exec={"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/false"})
    with pytest.raises(rest.ConfigError, match=f"^kubeconfig {path}: user 'u': exec: process returned 1$"):
        await rest.load_config(str(path))


@pytest.mark.real_time
async def test_a_plugin_that_is_not_there_is_named_and_told_once(
    write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(exec={"apiVersion": "client.authentication.k8s.io/v1", "command": "/no/such"})
    with pytest.raises(rest.ConfigError, match=r"user 'u': exec /no/such: No such file or directory$"):
        await rest.load_config(str(path))
    assert caplog.text == ""


@pytest.mark.real_time
async def test_a_plugin_must_give_something(write: Write, tmp_path: Path) -> None:
    with pytest.raises(rest.ConfigError, match=r"it returned neither a token nor a certificate$"):
        await rest.load_config(str(write(exec=plugin(tmp_path, {}))))


@pytest.mark.parametrize(
    ("plugin", "problem"),
    [
        ("echo", "exec must be a map with a command"),
        ({}, "exec must be a map with a command"),
        ({"command": "echo", "args": "hi"}, "exec.args must be a list of strings"),
        ({"command": "echo", "env": ["A"]}, "exec.env must be a list of names and values, both strings"),
        (
            {"command": "echo", "env": [{"name": "A", "value": 1}]},
            "exec.env must be a list of names and values",
        ),
    ],
)
async def test_a_plugin_with_fields_of_wrong_types_is_named(write: Write, plugin: Any, problem: str) -> None:
    with pytest.raises(rest.ConfigError, match=rf"^kubeconfig .*: user '.*': {problem}"):
        await rest.load_config(str(write(exec=plugin)))


@pytest.mark.real_time
async def test_a_relative_plugin_is_beside_the_kubeconfig(write: Write, tmp_path: Path) -> None:
    made = plugin(tmp_path, {"token": "one"})
    script = tmp_path / "login"
    script.write_text(f"#!/bin/sh\nexec {made['command']} {made['args'][0]}\n")
    script.chmod(0o755)
    config = await rest.load_config(str(write(exec={**made, "command": "./login", "args": []})))
    assert await config.credentials.headers() == {"Authorization": "Bearer one"}
