# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from controller_runtime import rest
from controller_runtime.rest import proxy

PROXY = "http://proxy.test:3128"


@pytest.mark.parametrize(
    ("server", "environ", "expected"),
    [
        ("https://c.test", {}, ""),
        ("https://c.test", {"HTTPS_PROXY": PROXY}, PROXY),
        ("https://c.test", {"https_proxy": PROXY}, PROXY),
        ("https://c.test", {"HTTPS_PROXY": PROXY, "https_proxy": "http://other"}, PROXY),
        ("https://c.test", {"HTTP_PROXY": PROXY}, ""),
        ("http://c.test", {"HTTP_PROXY": PROXY}, PROXY),
        ("https://c.test", {"HTTPS_PROXY": "proxy.test:3128"}, PROXY),
        ("https://localhost:6443", {"HTTPS_PROXY": PROXY}, ""),
        ("https://127.0.0.2:6443", {"HTTPS_PROXY": PROXY}, ""),
        ("https://[::1]:6443", {"HTTPS_PROXY": PROXY}, ""),
        ("no address", {"HTTPS_PROXY": PROXY}, ""),
    ],
)
def test_the_variable_of_the_servers_scheme_counts(
    server: str, environ: dict[str, str], expected: str
) -> None:
    assert proxy.from_environment(server, environ) == expected


@pytest.mark.parametrize(
    ("no_proxy", "server", "direct"),
    [
        ("*", "https://c.test", True),
        ("c.test", "https://c.test", True),
        ("c.test", "https://C.test.", True),
        ("c.test", "https://api.c.test", True),
        ("c.test", "https://abc.test", False),
        (".c.test", "https://c.test", False),
        (".c.test", "https://api.c.test", True),
        ("*.c.test", "https://api.c.test", True),
        ("*.c.test", "https://c.test", False),
        ("c.test:6443", "https://c.test:6443", True),
        ("c.test:6443", "https://c.test", False),
        ("c.test:443", "https://c.test", True),
        ("x, C.TEST ,y", "https://c.test", True),
        ("10.0.0.0/8", "https://10.96.0.1:443", True),
        ("10.0.0.1/8", "https://10.96.0.1:443", True),
        ("10.0.0.0/8", "https://11.0.0.1", False),
        ("10.0.0.0/8", "https://c.test", False),
        ("10.96.0.1", "https://10.96.0.1", True),
        ("10.96.0.1:6443", "https://10.96.0.1", False),
        ("fd00::/8", "https://[fd00::1]", True),
        ("fd00::1", "https://[fd00:0::1]", True),
        ("[fd00::1]:443", "https://[fd00::1]", True),
        ("[fd00::1]:444", "https://[fd00::1]", False),
        (",,:443,., 10.0.0.0/99", "https://c.test", False),
        ("bücher.test", "https://bücher.test", True),
        ("*.bücher.test", "https://api.bücher.test", True),
        (".bücher.test", "https://bücher.test", False),
        pytest.param(f"bücher..test,{'ü' * 64},c.test", "https://c.test", True, id="no name"),
    ],
)
def test_what_no_proxy_names_is_reached_directly(no_proxy: str, server: str, *, direct: bool) -> None:
    environ = {"HTTPS_PROXY": PROXY, "NO_PROXY": no_proxy}
    assert proxy.from_environment(server, environ) == ("" if direct else PROXY)


@pytest.mark.parametrize("value", ["socks5://jane:s3cret@proxy.test", "http://:1", "proxy.test:x"])
def test_a_proxy_that_cannot_be_used_is_an_error_without_its_password(value: str) -> None:
    with pytest.raises(rest.ConfigError, match=r"^HTTPS_PROXY: ") as raised:
        proxy.from_environment("https://c.test", {"HTTPS_PROXY": value})
    assert "s3cret" not in str(raised.value)
    assert proxy.from_environment("https://c.test", {"HTTPS_PROXY": value, "NO_PROXY": "c.test"}) == ""


async def test_the_kubeconfigs_proxy_comes_first(tmp_path: Path) -> None:
    def kubeconfig(**cluster: str) -> dict[str, object]:
        return {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": "https://c.test", **cluster}}],
            "users": [{"name": "u", "user": {}}],
        }

    environ = {"HTTPS_PROXY": PROXY}
    for cluster, expected in [({}, PROXY), ({"proxy-url": "http://own.test"}, "http://own.test")]:
        config = await rest.config_from_dict(kubeconfig(**cluster), environ=environ)
        assert config.proxy == expected
    (tmp_path / "token").write_text("secret")
    (tmp_path / "ca.crt").write_text("authority")
    pod = {**environ, "KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    assert rest.in_cluster_config(pod, folder=tmp_path).proxy == PROXY
    pod["NO_PROXY"] = "10.96.0.0/12"
    assert rest.in_cluster_config(pod, folder=tmp_path).proxy == ""
