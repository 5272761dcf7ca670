# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""An exec plugin runs once for all requests that wait for it, and again when its credentials expire or are refused."""

import base64
import dataclasses
import json
import os
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from controller_runtime import log, rest
from controller_runtime.envtest import Authority
from controller_runtime.rest import layers, login
from ctrl_testkit.small import WriteKubeconfig as Write

VERSION = "client.authentication.k8s.io/v1"
EXPIRED, VALID = "2001-01-01T00:00:00Z", "2999-01-01T00:00:00Z"


def plugin(tmp_path: Path, *statuses: dict[str, Any], does: str = "") -> dict[str, Any]:
    """Write an exec plugin that returns one status after the other and repeats the last; return its configuration.

    ``does`` is code that runs first.
    """
    script = tmp_path / "plugin.py"
    script.write_text(
        f"import json, os, pathlib, sys\n{does}\n"
        f"count = pathlib.Path({str(tmp_path / 'count')!r})\n"
        "n = int(count.read_text()) if count.exists() else 0\n"
        "count.write_text(str(n + 1))\n"
        f"status = json.loads({json.dumps(json.dumps(statuses))})[min(n, {len(statuses) - 1})]\n"
        f"kind = {{'apiVersion': {VERSION!r}, 'kind': 'ExecCredential'}}\n"
        "print(json.dumps({**kind, 'status': status}))\n"
    )
    return {"apiVersion": VERSION, "command": sys.executable, "args": [str(script)]}


def issued(user: str, *, days_ago: int = 0) -> dict[str, str]:
    """Return the status of a plugin that issues a certificate for ``user``; certificates are valid for a year."""
    pair = Authority.create("ca").client(user, now=datetime.now(UTC) - timedelta(days_ago))
    return {"clientCertificateData": pair.certificate.decode(), "clientKeyData": pair.key.decode()}


def says(status: str) -> dict[str, Any]:
    """Return the configuration of a plugin with this output."""
    return {"apiVersion": VERSION, "command": "printf", "args": ["%s", status]}


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
async def test_a_plugin_sees_the_variables_of_its_entry(write: Write, tmp_path: Path) -> None:
    kind = {"apiVersion": VERSION, "kind": "ExecCredential"}
    script = f"import json, os; print(json.dumps({kind} | {{'status': {{'token': os.environ['WORD']}}}}))"
    made = {
        "apiVersion": VERSION,
        "command": sys.executable,
        "args": ["-c", script],
        "env": [{"name": "WORD", "value": "secret"}],
    }
    config = await rest.load_config(str(write(exec=made)))
    assert await config.credentials.headers() == {"Authorization": "Bearer secret"}


@pytest.mark.real_time
@pytest.mark.parametrize("token", [{}, {"token": "one"}], ids=["alone", "and a token"])
async def test_a_plugin_may_issue_a_certificate_which_stays_in_memory(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: dict[str, str]
) -> None:
    (scratch := tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    status = issued("me")
    path = write(cluster={"server": "https://c.test"}, exec=plugin(tmp_path, {**token, **status}))
    config = await rest.load_config(str(path))
    assert config.tls is not None
    assert isinstance(config.tls.cert, bytes)
    assert isinstance(config.tls.key, bytes)
    assert [config.tls.cert.decode(), config.tls.key.decode()] == list(status.values())
    assert await config.credentials.headers() == ({"Authorization": "Bearer one"} if token else {})
    assert list(scratch.iterdir()) == []


@pytest.mark.real_time
async def test_a_plugin_is_told_of_the_cluster_if_it_asks(write: Write, tmp_path: Path) -> None:
    does = f"pathlib.Path({str(tmp_path / 'info')!r}).write_text(os.environ['KUBERNETES_EXEC_INFO'])"
    ca = Authority.create("ca").certificate
    (tmp_path / "ca.crt").write_bytes(ca)
    cluster = {
        "server": "https://c.test/below",
        "certificate-authority": "ca.crt",
        "tls-server-name": "other",
        "proxy-url": "http://proxy.test",
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}],
    }
    made = plugin(tmp_path, {"token": "one"}, does=does)
    request = {"kind": "ExecCredential", "apiVersion": VERSION, "spec": {"interactive": False}}
    await rest.load_config(str(write(cluster=cluster, exec=made)))
    assert json.loads((tmp_path / "info").read_text()) == request
    await rest.load_config(str(write(cluster=cluster, exec={**made, "provideClusterInfo": True})))
    request["spec"] = {
        "interactive": False,
        "cluster": {
            "server": "https://c.test/below",
            "certificate-authority-data": base64.b64encode(ca).decode(),
            "tls-server-name": "other",
            "proxy-url": "http://proxy.test",
            "config": {"audience": "a"},
        },
    }
    assert json.loads((tmp_path / "info").read_text()) == request


@pytest.mark.real_time
async def test_what_a_plugin_says_on_its_standard_error_is_shown(
    write: Write, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    does = (
        "print('Open https://issuer.test and enter ABC.', file=sys.stderr); sys.stderr.write('.' * 300_000)"
    )
    await rest.load_config(str(write(exec=plugin(tmp_path, {"token": "one"}, does=does))))
    assert capfd.readouterr().err.startswith("Open https://issuer.test and enter ABC.\n")


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
async def test_a_token_stays_in_use_when_it_was_refused_and_its_plugin_fails(
    write: Write, tmp_path: Path
) -> None:
    status = {"token": "one", "expirationTimestamp": VALID}
    config = await rest.load_config(str(write(exec=plugin(tmp_path, status, {}))))
    with pytest.raises(rest.ConfigError, match="it returned neither a token nor a certificate"):
        await config.credentials.refresh()
    assert await config.credentials.headers() == {"Authorization": "Bearer one"}


@pytest.mark.real_time
async def test_a_plugins_certificate_is_renewed_when_the_server_refuses_it(
    write: Write, tmp_path: Path
) -> None:
    statuses = [issued(user) for user in ("old", "new")]
    path = write(cluster={"server": "https://c.test"}, exec=plugin(tmp_path, *statuses))
    config = dataclasses.replace(await rest.load_config(str(path)), user_agent="a copy")
    assert config.tls is not None
    assert config.tls.issued is not None
    assert await config.credentials.headers() == {}
    assert config.tls.issued.cert.decode() == statuses[0]["clientCertificateData"]
    assert await config.credentials.refresh()
    assert config.tls.issued.cert.decode() == statuses[1]["clientCertificateData"]
    assert not await config.credentials.refresh()


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("stated", "days_ago"),
    [
        pytest.param(EXPIRED, 0, id="as the plugin says"),
        pytest.param(VALID, 366, id="as the certificate says"),
    ],
)
async def test_a_plugins_certificate_is_renewed_when_it_has_expired(
    write: Write, tmp_path: Path, stated: str, days_ago: int
) -> None:
    statuses = [issued("old", days_ago=days_ago) | {"expirationTimestamp": stated}, issued("new")]
    config = await rest.load_config(str(write(exec=plugin(tmp_path, *statuses))))
    await config.credentials.headers()
    assert config.tls is not None
    assert config.tls.issued is not None
    assert config.tls.issued.cert.decode() == statuses[1]["clientCertificateData"]


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("output", "problem"),
    [
        ("", "its output is not an ExecCredential: Input data was truncated"),
        ("[" * 100_000, "its output is not an ExecCredential: "),
        ('{"kind":"ExecCredential","apiVersion":"v1"}', f"it returned v1 ExecCredential, not {VERSION}"),
        ({}, "it returned neither a token nor a certificate"),
        ({"token": "t", "clientKeyData": "s3cret"}, "it returned a key without a certificate"),
        ({"token": "t", "clientCertificateData": "c"}, "it returned a certificate without a key"),
        ({"clientKeyData": "s3cret", "clientCertificateData": "c"}, "its certificate is invalid: "),
        ({"token": "s3cret", "expirationTimestamp": "2999-01-01T00:00:00"}, "its output is not an ExecCred"),
    ],
)
async def test_an_invalid_output_of_a_plugin_is_an_error_without_its_secrets(
    write: Write, output: str | dict[str, str], problem: str
) -> None:
    if isinstance(output, dict):
        output = json.dumps({"kind": "ExecCredential", "apiVersion": VERSION, "status": output})
    with pytest.raises(rest.ConfigError, match=f"user 'u': exec printf: {problem}") as caught:
        await rest.load_config(str(write(exec=says(output))))
    assert "s3cret" not in str(caught.value)


@pytest.mark.real_time
async def test_a_plugin_that_writes_without_end_is_given_up(write: Write) -> None:
    with pytest.raises(rest.ConfigError, match="exec yes: its output is longer than 1048576 bytes"):
        await rest.load_config(str(write(exec={"apiVersion": VERSION, "command": "yes"})))


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("/no/such", "No such file or directory"),
        ("no-such-plugin", "No such file or directory"),
        (os.devnull, "Permission denied"),
    ],
    ids=["a path", "a name in PATH", "not a program"],
)
async def test_a_plugin_that_is_not_installed_is_named_once_with_its_install_hint(
    write: Write, caplog: pytest.LogCaptureFixture, command: str, problem: str
) -> None:
    made = {"apiVersion": VERSION, "command": command, "installHint": "Install it:\n  get no-such"}
    wanted = rf"exec {command}: {problem}: Install it: get no-such$"
    with pytest.raises(rest.ConfigError, match=wanted):
        await rest.load_config(str(write(exec=made)))
    assert caplog.text == ""


@pytest.mark.real_time
async def test_the_commands_of_a_script_that_does_not_end_are_killed_and_the_wait_is_logged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(login, "UNTOLD_WAIT", 0.1)
    plugin = {
        "apiVersion": VERSION,
        "command": "sh",
        "args": ["-c", "sleep 60; true"],
        "interactiveMode": "Never",
    }
    with (
        log.captured() as lines,
        anyio.fail_after(30),
        pytest.raises(rest.ConfigError, match=r"exec sh: it did not end within 0.5 s"),
    ):
        await login.run_plugin(plugin, None, limit=0.5)
    assert [(line["event"], line["command"]) for line in lines] == [("Waiting for the login plugin", "sh")]


@pytest.mark.parametrize(
    ("plugin", "problem"),
    [
        ("echo", "exec must be a map with a command"),
        ({}, "exec must be a map with a command"),
        ({"args": "hi"}, "exec.args must be a list of strings"),
        ({"env": ["A"]}, "exec.env must be a list of names and values, both strings"),
        ({"env": [{"name": "A", "value": 1}]}, "exec.env must be a list of names and values"),
        ({"apiVersion": "client.authentication.k8s.io/v1alpha1"}, "exec.apiVersion must be client.auth"),
        ({"interactiveMode": "Sometimes"}, "exec.interactiveMode must be Never, IfAvailable or Always"),
        (
            {"interactiveMode": "Always"},
            "exec echo: interactiveMode is Always, but the standard input is not",
        ),
    ],
)
async def test_a_plugin_with_fields_of_wrong_types_is_named(write: Write, plugin: Any, problem: str) -> None:
    if plugin and isinstance(plugin, dict):
        plugin = {"apiVersion": VERSION, "command": "echo", **plugin}
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


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("made", "problem"),
    [
        ({"command": "sh", "args": ["-c", "no-such-plugin"]}, "failed with exit code 127: Get it$"),
        ({"command": "env", "args": ["no-such-plugin"]}, "failed with exit code 127: Get it$"),
        ({"command": "sh", "args": ["-c", "/dev/null"]}, "failed with exit code 126: Get it$"),
        ({"command": "sh", "args": ["-c", "exit 3"]}, "failed with exit code 3$"),
        (
            {"command": "no-such", "installHint": "\x1b[31mGet\n it\u202e"},
            r"directory: \\x1b\[31mGet it\\u202e$",
        ),
        ({"command": "no-such", "installHint": "g" * 100_000}, "directory: g{1000}$"),
        ({"command": "no-such", "installHint": ["Get it"]}, "directory$"),
        ({"command": ""}, "exec must be a map with a command"),
        ({"command": "echo", "args": ["a\0"]}, "exec echo: embedded null byte"),
        (
            {"command": "echo", "env": [{"name": "A=B", "value": ""}]},
            "exec echo: illegal environment variable",
        ),
    ],
)
async def test_a_program_that_a_plugin_lacks_is_told_with_the_hint_on_one_line(
    write: Write, made: dict[str, Any], problem: str
) -> None:
    path = write(exec={"apiVersion": VERSION, "installHint": "Get it", **made})
    with pytest.raises(rest.ConfigError, match=problem):
        await rest.load_config(str(path))


@pytest.mark.real_time
async def test_a_plugin_whose_interpreter_is_missing_is_said_to_be_there(
    write: Write, tmp_path: Path
) -> None:
    script = tmp_path / "login"
    script.write_text("#!/no/such/python\n")
    script.chmod(0o755)
    problem = "login: the interpreter in its first line does not exist: Get it$"
    with pytest.raises(rest.ConfigError, match=problem):
        await rest.load_config(
            str(write(exec={"apiVersion": VERSION, "command": str(script), "installHint": "Get it"}))
        )
