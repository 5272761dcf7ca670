# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Client configuration is looked for in the same places as by kubectl, and errors name the file, on one line."""

import base64
import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller_runtime import rest
from controller_runtime.envtest import Authority
from controller_runtime.log import captured as capture_logs
from ctrl_testkit.small import WriteKubeconfig as Write


async def test_a_file_gives_host_namespace_and_token(write: Write) -> None:
    config = await rest.load_config(str(write(token="t0")))
    assert (config.host, config.namespace) == ("https://cluster.test:8001", "ns-config")
    assert await config.credentials.headers() == {"Authorization": "Bearer t0"}


async def test_the_file_given_wins_over_the_environment(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {"KUBECONFIG": str(write("env")), "KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOME": str(tmp_path)}
    assert (await rest.load_config(str(write("flag")), environ=environ)).namespace == "ns-flag"
    assert (await rest.load_config(environ=environ)).namespace == "ns-env"
    monkeypatch.setenv("KUBECONFIG", str(write("real")))
    assert (await rest.load_config()).namespace == "ns-real"


async def test_several_files_are_merged_and_the_missing_ones_skipped(write: Write, tmp_path: Path) -> None:
    paths = ":".join(map(str, [tmp_path / "absent", write("one"), write("two")]))
    config = await rest.load_config(context="ctx-two", environ={"KUBECONFIG": paths})
    assert config.namespace == "ns-two"
    # The first current-context counts.
    assert (await rest.load_config(environ={"KUBECONFIG": paths})).namespace == "ns-one"


async def test_the_home_directory_comes_last(write: Write, tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    write().rename(tmp_path / ".kube" / "config")
    assert (await rest.load_config(environ={"HOME": str(tmp_path)})).namespace == "ns-config"
    without_token = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(rest.ConfigError, match=r"^in-cluster configuration: .*token"):
        await rest.load_config(environ={"HOME": "/nonexistent", **without_token})
    config = await rest.load_config(environ={"HOME": str(tmp_path), **without_token})
    assert config.namespace == "ns-config"


async def test_without_any_source_one_line_says_where_was_looked(tmp_path: Path) -> None:
    with pytest.raises(
        rest.ConfigError, match=r"^no cluster configuration found: .*KUBECONFIG.*\.kube/config"
    ):
        await rest.load_config(environ={"HOME": str(tmp_path)})


async def test_a_file_that_is_absent_or_no_file_is_named(write: Write, tmp_path: Path) -> None:
    for path, problem in ((tmp_path / "absent", "no such file"), (tmp_path, "Is a directory")):
        with pytest.raises(rest.ConfigError, match=rf"^kubeconfig {path}: {problem}$"):
            await rest.load_config(str(path))
    with pytest.raises(rest.ConfigError, match=r"config: cluster 'c': server is missing$"):
        await rest.load_config(str(write(cluster={"server": ""})))


async def test_an_unknown_home_directory_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(rest.ConfigError, match=r"^kubeconfig ~no-such-user/config: "):
        await rest.load_config("~no-such-user/config")

    def unknown(_path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", unknown)
    with pytest.raises(rest.ConfigError, match=r"^no cluster configuration found: "):
        await rest.load_config(environ={})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param("", "is empty or not a map", id="empty"),
        pytest.param("a: [", "not YAML", id="not yaml"),
        pytest.param("clusters: {}\ncontexts: 3", "contexts must be a list of named entries", id="no list"),
        pytest.param("clusters: []", "current-context is not set", id="no context"),
        pytest.param("current-context: x", "context 'x' is not defined", id="undefined context"),
        pytest.param(
            "contexts: [{name: a, context: {user: b}}]\ncurrent-context: a",
            "context 'a' names no cluster",
            id="no cluster",
        ),
        pytest.param("a: !!bool maybe", "not YAML: line 1: a: 'maybe' is not of type bool", id="no boolean"),
        pytest.param("[" * 40_000, "nested more than 200 levels deep", id="brackets"),
        pytest.param("contexts: [{name: a, context: x}]", "context 'a': context must be a map", id="context"),
        pytest.param(
            "clusters: [{name: a, cluster: [b]}]", "cluster 'a': cluster must be a map", id="cluster"
        ),
        pytest.param("users: [{name: a, user: x}]", "user 'a': user must be a map", id="user"),
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


ABSENT_PLUGIN = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/nonexistent"}


@pytest.mark.parametrize(
    ("user", "complaint"),
    [
        pytest.param(
            {"client-certificate": "absent.pem"}, "client-certificate .*absent.pem does not exist", id="file"
        ),
        pytest.param({"client-key-data": "§"}, "client-key-data is not base64", id="data"),
        pytest.param(
            {"exec": ABSENT_PLUGIN, "auth-provider": {"name": "oidc"}},
            "auth-provider cannot be combined with exec",
            id="two logins",
        ),
        pytest.param({"tokenFile": "absent"}, "token file .*absent: No such file", id="token file"),
        pytest.param({"as-groups": ["a"]}, "as is required with as-uid", id="groups of nobody"),
        pytest.param({"as": "jane", "as-groups": "a"}, "as-groups must be a list of strings", id="groups"),
        pytest.param({"as": "jane", "as-user-extra": ["a"]}, "as-user-extra must be a map", id="extra"),
        pytest.param({"token": 3}, "token must be a string", id="type"),
        pytest.param({"token": "a\n"}, "token contains a line break", id="line break"),
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
                    "client-key-data": base64.encodebytes(pair.key).decode(),
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
    nobody = await rest.load_config(str(write(username="", password="")))
    assert await nobody.credentials.headers() == {}


async def test_a_user_without_credentials_is_anonymous(write: Write) -> None:
    with capture_logs() as lines:
        config = await rest.load_config(str(write(cluster={"server": "https://c.test"})))
    assert await config.credentials.headers() == {}
    assert [line["event"] for line in lines] == [
        "No credentials: the API server treats this client as anonymous"
    ]


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
    assert (await rest.config_from_dict(data)).host == "https://cluster.test:8001"


@pytest.mark.parametrize(
    ("server", "problem"),
    [
        pytest.param(
            "https://c.test:%s", "is not a valid address: Port could not be cast", id="port is no number"
        ),
        pytest.param("https://c.test:70000", "is not a valid address: Port out of range", id="port too high"),
        pytest.param("ftp://c.test", "must begin with https:// or http://", id="scheme"),
        pytest.param("https://:6443", "has no valid host", id="no host"),
        pytest.param("https://[::1", "is not a valid address", id="open bracket"),
    ],
)
async def test_a_server_that_is_no_address_is_refused_before_any_request(
    write: Write, server: str, problem: str
) -> None:
    path = write(cluster={"server": server})
    with pytest.raises(rest.ConfigError) as caught:
        await rest.load_config(str(path))
    assert str(caught.value).startswith(f"kubeconfig {path}: cluster 'c': server {server!r} {problem}")


CA = "certificate-authority-data"


@pytest.mark.parametrize(
    ("cluster", "user", "host"),
    [
        ({"server": "c.test:6443"}, {}, "http://c.test:6443"),
        ({"server": "c.test:6443", CA: "pem"}, {}, "https://c.test:6443"),
        ({"server": "c.test:6443", "insecure-skip-tls-verify": True}, {}, "https://c.test:6443"),
        ({"server": "c.test:6443", "insecure-skip-tls-verify": False}, {}, "http://c.test:6443"),
        (
            {"server": "c.test"},
            {"client-certificate-data": "pem", "client-key-data": "pem"},
            "https://c.test",
        ),
        ({"server": "http://c.test", CA: "pem"}, {}, "http://c.test"),
        ({"server": "HTTPS://c.test", CA: "pem"}, {}, "https://c.test"),
        ({"server": "Http://jane:s3cret@c.test"}, {}, "http://c.test"),
        ({"server": "http://jane:s3cret@c.test/below"}, {}, "http://c.test/below"),
        ({"server": "https://jane:s3cret@c.test/below"}, {}, "https://jane:s3cret@c.test/below"),
    ],
)
async def test_a_server_without_a_scheme_speaks_tls_where_there_are_settings_of_it(
    write: Write, cluster: dict[str, Any], user: dict[str, str], host: str
) -> None:
    me = Authority.create("ca").client("me")
    pem = {CA: me.certificate, "client-certificate-data": me.certificate, "client-key-data": me.key}
    filled: list[dict[str, Any]] = [
        {key: base64.b64encode(pem[key]).decode() if value == "pem" else value for key, value in part.items()}
        for part in (cluster, user)
    ]
    config = await rest.load_config(str(write(cluster=filled[0], **filled[1])))
    assert config.host == host
    assert (config.tls is not None) == host.startswith("https:")


@pytest.mark.parametrize(
    "user",
    [
        {"token": "t"},
        {"username": "me", "password": "s3cret"},
        {"tokenFile": "/nonexistent"},
        {"exec": ABSENT_PLUGIN},
    ],
    ids=lambda user: next(iter(user)),
)
async def test_credentials_do_not_go_out_in_the_clear(write: Write, user: dict[str, Any]) -> None:
    with capture_logs() as lines:
        config = await rest.load_config(str(write(cluster={"server": "http://c.test"}, **user)))
    assert isinstance(config.credentials, rest.Anonymous)
    assert [line["event"] for line in lines] == ["Credentials are not sent over plain HTTP"]


@pytest.mark.parametrize(
    ("user", "authorization"),
    [
        pytest.param({"token": "t", "exec": ABSENT_PLUGIN}, "Bearer t", id="token"),
        pytest.param({"username": "me", "password": "s3cret", "exec": ABSENT_PLUGIN}, "Basic", id="password"),
        pytest.param(
            {"client-certificate-data": "pem", "client-key-data": "pem", "exec": ABSENT_PLUGIN}, "", id="pair"
        ),
        pytest.param(
            {
                "token": "t",
                "auth-provider": {"name": "oidc", "config": {"idp-issuer-url": "i", "client-id": "c"}},
            },
            "Bearer t",
            id="token of an OIDC user",
        ),
        pytest.param({"exec": None, "auth-provider": None}, "", id="null"),
    ],
)
async def test_static_credentials_win_over_a_login(
    write: Write, user: dict[str, Any], authorization: str
) -> None:
    me = Authority.create("ca").client("me")
    pem = {"client-certificate-data": me.certificate, "client-key-data": me.key}
    filled = {
        key: base64.b64encode(pem[key]).decode() if value == "pem" else value for key, value in user.items()
    }
    config = await rest.load_config(str(write(cluster={"server": "https://c.test"}, **filled)))
    assert (await config.credentials.headers()).get("Authorization", "").startswith(authorization)
    assert config.tls is not None
    assert (config.tls.cert is not None) == ("client-certificate-data" in user)


@pytest.mark.parametrize(
    ("provider", "problem"),
    [
        (
            {"name": "gcp", "config": {}},
            "auth-provider: no Auth Provider found for name 'gcp'; use an exec plugin",
        ),
        ("oidc", "auth-provider: no Auth Provider found for name None"),
        ({"name": "oidc"}, "auth-provider.config must be a map"),
        (
            {"name": "oidc", "config": {"refresh-token": "s3cret", "idp-issuer-url": "i"}},
            ": client-id is missing",
        ),
        ({"name": "oidc", "config": {"refresh-token": "s3cret"}}, ": idp-issuer-url is missing"),
    ],
)
async def test_an_error_of_an_auth_provider_names_the_setting_and_quotes_no_token(
    write: Write, provider: Any, problem: str
) -> None:
    path = write(cluster={"server": "https://c.test"}, **{"auth-provider": provider})
    with pytest.raises(rest.ConfigError, match=problem) as caught:
        await rest.load_config(str(path))
    assert str(caught.value).startswith(f"kubeconfig {path}: user 'u': ")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("value", ["false", "true", 1, 0, "", []])
async def test_whether_to_verify_is_true_or_false_and_no_text(write: Write, value: Any) -> None:
    path = write(cluster={"server": "https://c.test", "insecure-skip-tls-verify": value})
    with pytest.raises(rest.ConfigError, match="insecure-skip-tls-verify must be true or false"):
        await rest.load_config(str(path))


async def test_an_authority_that_would_not_be_used_is_refused(write: Write) -> None:
    ca = base64.b64encode(Authority.create("ca").certificate).decode()
    path = write(cluster={"server": "https://c.test", "insecure-skip-tls-verify": True, CA: ca})
    with pytest.raises(rest.ConfigError, match="not allowed when certificates are not verified"):
        await rest.load_config(str(path))


@pytest.mark.parametrize(("given", "missing"), [("client-certificate", "key"), ("client-key", "certificate")])
async def test_half_a_client_certificate_is_refused(write: Write, given: str, missing: str) -> None:
    me = Authority.create("ca").client("me")
    half = base64.b64encode(me.key if given == "client-key" else me.certificate).decode()
    path = write(cluster={"server": "https://c.test"}, **{f"{given}-data": half})
    with pytest.raises(rest.ConfigError, match=f"client certificate: its {missing} is missing"):
        await rest.load_config(str(path))


@pytest.mark.parametrize(
    "cluster",
    [
        {"server": "https://jane:s3cret@c.test:x"},
        {"server": "https://jane:s3cret/@c.test"},
        {"server": "ftp://jane:s3cret@c.test"},
        {"server": "jane:s3cret@"},
        {"server": "https://c.test", "proxy-url": "socks5://jane:s3cret@proxy.test"},
        {"server": "https://c.test", "proxy-url": "http://jane:s3cret@:1"},
    ],
)
async def test_an_error_shows_no_password_of_a_url(write: Write, cluster: dict[str, str]) -> None:
    with pytest.raises(rest.ConfigError) as caught:
        await rest.load_config(str(write(cluster=cluster)))
    assert "s3c" not in str(caught.value)


async def test_what_is_printed_of_a_connection_holds_no_secret() -> None:
    me = Authority.create("ca").client("me")
    config = rest.Config(
        "https://jane:s3cret@127.0.0.1:1/below",
        tls=rest.TLSConfig(ca=Path("/ca.crt"), cert=me.certificate, key=me.key, server_name="c.test"),
        credentials=rest.Basic("jane", "s3cret"),
        proxy="http://jane:s3cret@proxy.test:3128",
    )
    printed = repr(config)
    assert "s3cret" not in printed
    assert "PRIVATE" not in printed
    assert "host='https://127.0.0.1:1/below'" in printed
    assert f"ca='/ca.crt', cert=<{len(me.certificate)} bytes>, key=<{len(me.key)} bytes>" in printed
    assert "proxy='http://proxy.test:3128'" in printed
    assert repr(dataclasses.replace(config, namespace="n")).count("namespace='n'") == 1


@pytest.mark.real_time
async def test_an_error_of_a_connection_shows_no_password() -> None:
    async with rest.Transport(rest.Config("http://jane:s3cret@127.0.0.1:1")) as transport:
        with pytest.raises(rest.TransportError) as caught:
            await transport.send(rest.Request("GET", "/version"))
    assert str(caught.value) == "http://127.0.0.1:1: connection refused"


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


@pytest.mark.parametrize(
    ("files", "port", "message"),
    [
        ({}, "443", r"No such file .*token"),
        ({"token": "x"}, "443", r"No such file .*ca\.crt"),
        ({"token": "", "ca.crt": "x"}, "443", r".*token is empty"),
        ({"token": "x", "ca.crt": "x"}, "", r"KUBERNETES_SERVICE_PORT is not set"),
    ],
)
def test_a_pod_says_what_its_service_account_lacks(
    tmp_path: Path, files: dict[str, str], port: str, message: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": port}
    with pytest.raises(rest.ConfigError, match=rf"^in-cluster configuration: .*{message}"):
        rest.in_cluster_config(environ, folder=tmp_path)


_LOADS = """
import json, os, ssl, sys
from controller_runtime import webhook
from controller_runtime.rest.tls import TLSConfig
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


@pytest.mark.parametrize(
    ("started", "program"),
    [
        ("/usr/bin/thing", "thing"),
        ("/app/cmd/thing.py", "thing"),
        ("/site/thing/__main__.py", "thing"),
        ("-c", "-c"),
        ("", "python"),
        ("/opt/th\u00efng\r\nX: y", "th_ng__X: y"),
    ],
)
def test_a_user_agent_names_what_was_started(
    monkeypatch: pytest.MonkeyPatch, started: str, program: str
) -> None:
    monkeypatch.setattr(sys, "argv", [started])
    assert rest.Config("https://c.test").user_agent.partition("/")[0] == program
    assert rest.user_agent("me", "1.2").startswith("me/1.2 (linux/")
