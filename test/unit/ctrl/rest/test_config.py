# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Settings: found where kubectl finds them, and complaints that name the file on one line."""

import base64
import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from pkg.ctrl import rest
from pkg.ctrl.envtest.pki import Authority

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str = "config", **user: Any) -> Path:
        cluster = {"server": "http://cluster.test:8001/", **user.pop("cluster", {})}
        data = {
            "current-context": f"ctx-{name}",
            "contexts": [
                {"name": f"ctx-{name}", "context": {"cluster": "c", "user": "u", "namespace": f"ns-{name}"}},
                {"name": "lost", "context": {"cluster": "nowhere", "user": "u"}},
            ],
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
        }
        path = tmp_path / name
        path.write_text(yaml.safe_dump(data))
        return path

    return write


def plugin(tmp_path: Path, *statuses: dict[str, Any]) -> dict[str, Any]:
    """An exec plugin that answers with one status after the other, the last one for ever."""
    script = tmp_path / "plugin.py"
    script.write_text(
        "import json, pathlib, sys\n"
        f"count = pathlib.Path({str(tmp_path / 'count')!r})\n"
        "n = int(count.read_text()) if count.exists() else 0\n"
        "count.write_text(str(n + 1))\n"
        f"status = json.loads({json.dumps(json.dumps(statuses))})[min(n, {len(statuses) - 1})]\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential', 'status': status}))\n"
    )
    return {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable, "args": [str(script)]}


async def test_a_file_gives_host_namespace_and_token(write: Write) -> None:
    config = await rest.load_config(str(write(token="t0")))
    assert (config.host, config.namespace, config.tls) == ("http://cluster.test:8001", "ns-config", None)
    assert await config.credentials.headers() == {"Authorization": "Bearer t0"}


async def test_the_file_given_wins_over_the_environment(write: Write, tmp_path: Path) -> None:
    environ = {"KUBECONFIG": str(write("env")), "KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOME": str(tmp_path)}
    assert (await rest.load_config(str(write("flag")), environ=environ)).namespace == "ns-flag"
    assert (await rest.load_config(environ=environ)).namespace == "ns-env"


async def test_several_files_are_merged_and_the_missing_ones_skipped(write: Write, tmp_path: Path) -> None:
    paths = ":".join(map(str, [tmp_path / "absent", write("one"), write("two")]))
    config = await rest.load_config(context="ctx-two", environ={"KUBECONFIG": paths})
    assert config.namespace == "ns-two"


async def test_the_home_directory_comes_last(write: Write, tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    write().rename(tmp_path / ".kube" / "config")
    assert (await rest.load_config(environ={"HOME": str(tmp_path)})).namespace == "ns-config"


async def test_without_any_source_one_line_says_where_was_looked(tmp_path: Path) -> None:
    with pytest.raises(rest.ConfigError, match=r"^no way to reach a cluster: .*KUBECONFIG.*\.kube/config"):
        await rest.load_config(environ={"HOME": str(tmp_path)})


async def test_the_programs_environment_is_not_ours_to_forget(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(write("real")))
    assert (await rest.load_config()).namespace == "ns-real"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param("", "is empty or no map", id="empty"),
        pytest.param("a: [", "not YAML", id="not yaml"),
        pytest.param("clusters: {}\ncontexts: 3", "contexts is no list of named entries", id="no list"),
        pytest.param("clusters: []", "current-context is not set", id="no context"),
        pytest.param("current-context: x", "context 'x' is not defined", id="undefined context"),
    ],
)
async def test_a_bad_file_is_named_on_one_line(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "bad"
    path.write_text(text)
    with pytest.raises(rest.ConfigError) as caught:
        await rest.load_config(str(path))
    assert str(caught.value).startswith(f"kubeconfig {path}: ")
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("user", "complaint"),
    [
        pytest.param(
            {"client-certificate": "absent.pem"}, "client-certificate .*absent.pem does not exist", id="file"
        ),
        pytest.param({"client-key-data": "§"}, "client-key-data is not base64", id="data"),
        pytest.param({"tokenFile": "absent"}, "token file .*absent: No such file", id="token file"),
        pytest.param({"as-groups": ["a"]}, "as is missing: whom do", id="groups of nobody"),
        pytest.param({"as": "jane", "as-groups": "a"}, "as-groups is no list of texts", id="groups"),
        pytest.param({"as": "jane", "as-user-extra": ["a"]}, "as-user-extra is no map", id="extra"),
        pytest.param({"token": 3}, "token is no text", id="type"),
    ],
)
async def test_a_bad_user_is_named(write: Write, user: dict[str, Any], complaint: str) -> None:
    with pytest.raises(rest.ConfigError, match=complaint):
        await rest.load_config(str(write(cluster={"server": "https://c.test"}, **user)))


async def test_a_context_of_an_undefined_cluster_is_named(write: Write) -> None:
    with pytest.raises(rest.ConfigError, match="cluster 'nowhere' is not defined"):
        await rest.load_config(str(write()), context="lost")


async def test_inline_certificates_stay_in_memory_and_paths_are_meant_from_the_file(
    write: Write, tmp_path: Path
) -> None:
    authority = Authority.create("test-ca")
    pair = authority.client("me")
    authority.pair.write(tmp_path, "ca")
    config = await rest.load_config(
        str(
            write(
                cluster={
                    "server": "https://c.test",
                    "certificate-authority": "ca.crt",
                    "tls-server-name": "other",
                },
                **{
                    "client-certificate-data": base64.b64encode(pair.certificate).decode(),
                    "client-key-data": base64.b64encode(pair.key).decode(),
                },
            )
        )
    )
    assert config.tls is not None
    assert config.tls.ca == tmp_path / "ca.crt"
    assert (config.tls.cert, config.tls.key) == (pair.certificate, pair.key)
    assert config.tls.server_name == "other"
    assert config.tls.ssl_context().get_ca_certs()


async def test_a_token_file_wins_over_a_token(write: Write, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file\n")
    config = await rest.load_config(str(write(token="inline", tokenFile="token")))
    assert await config.credentials.headers() == {"Authorization": "Bearer from-file"}


async def test_a_user_name_and_password_make_basic_credentials(write: Write) -> None:
    config = await rest.load_config(str(write(username="me", password="secret")))
    assert await config.credentials.headers() == {"Authorization": "Basic bWU6c2VjcmV0"}


async def test_a_user_may_act_as_another(write: Write) -> None:
    whom = {"as": "jane", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"Scope/x": ["r", "w"]}}
    config = await rest.load_config(str(write(token="t", **whom)))
    assert config.impersonate is not None
    assert config.impersonate.headers() == [
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-Scope%2Fx", "r"),
        ("Impersonate-Extra-Scope%2Fx", "w"),
    ]


async def test_a_parsed_kubeconfig_is_read_too(write: Write) -> None:
    data = yaml.safe_load(write(token="t").read_text())
    assert (await rest.Config.from_kubeconfig_dict(data)).host == "http://cluster.test:8001"


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
async def test_a_plugin_may_issue_a_certificate(write: Write, tmp_path: Path) -> None:
    pair = Authority.create("ca").client("me")
    status = {"clientCertificateData": pair.certificate.decode(), "clientKeyData": pair.key.decode()}
    path = write(cluster={"server": "https://c.test"}, exec=plugin(tmp_path, status))
    config = await rest.load_config(str(path))
    assert config.tls is not None
    assert (config.tls.cert, config.tls.key) == (pair.certificate, pair.key)


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
    config.credentials._runs_out = datetime.now(UTC)  # type: ignore[attr-defined] # a plugin's
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
    with pytest.raises(rest.ConfigError, match=r"it gave neither a token nor a certificate$"):
        await rest.load_config(str(write(exec=plugin(tmp_path, {}))))


@pytest.mark.parametrize(
    ("server", "problem"),
    [
        pytest.param("https://c.test:%s", "is no address: Port could not be cast", id="port is no number"),
        pytest.param("https://c.test:70000", "is no address: Port out of range", id="port too high"),
        pytest.param("ftp://c.test", "begins with neither https:// nor http://", id="scheme"),
        pytest.param("https://:6443", "lacks a host", id="no host"),
        pytest.param("https://[::1", "is no address", id="open bracket"),
    ],
)
async def test_a_server_that_is_no_address_is_refused_before_any_request(
    write: Write, server: str, problem: str
) -> None:
    path = write(cluster={"server": server})
    with pytest.raises(rest.ConfigError) as caught:
        await rest.load_config(str(path))
    assert str(caught.value).startswith(f"kubeconfig {path}: cluster 'c': server {server!r} {problem}")


@pytest.mark.parametrize(
    ("cluster", "user", "part"),
    [
        pytest.param({"certificate-authority-data": "Z2FyYmFnZQ=="}, {}, "certificate authority", id="ca"),
        pytest.param(
            {},
            {"client-certificate-data": "Z2FyYmFnZQ==", "client-key-data": "Z2FyYmFnZQ=="},
            "client certificate",
            id="client",
        ),
    ],
)
async def test_a_certificate_that_is_none_is_named_with_its_file(
    write: Write, cluster: dict[str, str], user: dict[str, str], part: str
) -> None:
    path = write(cluster={"server": "https://c.test", **cluster}, **user)
    with pytest.raises(rest.ConfigError, match=f"^kubeconfig {path}: {part}: "):
        await rest.load_config(str(path))


async def test_a_pod_reaches_its_own_cluster(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("pod-token\n")
    (tmp_path / "ca.crt").write_bytes(Authority.create("ca").certificate)
    (tmp_path / "namespace").write_text("kubeflow-system")
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    config = rest.in_cluster_config(environ, folder=tmp_path)
    assert (config.host, config.namespace) == ("https://[fd00::1]:443", "kubeflow-system")
    assert await config.credentials.headers() == {"Authorization": "Bearer pod-token"}


def test_a_pod_without_a_token_says_so(tmp_path: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(
        rest.ConfigError, match=r"^in-cluster configuration: Service token file does not exist"
    ):
        rest.in_cluster_config(environ, folder=tmp_path)


_LOADS = """
import json, os, ssl, sys
from pkg.ctrl import webhook
from pkg.ctrl.rest.tls import TLSConfig
pair = webhook.SelfSigned().pair()
written = []
sys.addaudithook(
    lambda event, args: event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and written.append(args[0])
)
TLSConfig(cert=pair[0], key=pair[1]).ssl_context()
webhook.SelfSigned().context()
print(json.dumps([each for each in written if not isinstance(each, int)]))
"""


@pytest.mark.real_time
def test_a_private_key_is_never_written_to_a_file_with_a_name() -> None:
    done = subprocess.run([sys.executable, "-c", _LOADS], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
