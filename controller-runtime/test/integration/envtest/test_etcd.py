# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""etcd serves the API server alone: everything is stored in it, and it grants every client everything."""

import http.client
import socket
import ssl
from urllib.parse import urlsplit

import pytest

from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.client import LiveClient
from controller_runtime.envtest import HOST, Environment

pytestmark = pytest.mark.integration
PUT = b'{"key": "L3JlZ2lzdHJ5L3BvZHMvZGVmYXVsdC9w", "value": "eA=="}'


@pytest.fixture(params=["client", "peer"])
def port(request: pytest.FixtureRequest, control_plane: Environment) -> int:
    plane = control_plane.control_plane
    return (urlsplit(plane.etcd_url).port or 0) if request.param == "client" else plane._peer


def post(port: int, path: str, tls: ssl.SSLContext | None) -> int:
    """Return the status of the response, or 0 without a response."""
    connection: http.client.HTTPConnection
    if tls is None:
        connection = http.client.HTTPConnection(HOST, port, timeout=10)
    else:
        connection = http.client.HTTPSConnection(HOST, port, timeout=10, context=tls)
    try:
        connection.request("POST", path, PUT, {"Content-Type": "text/plain", "Origin": "http://example.com"})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def test_plain_http_does_not_reach_etcd(port: int) -> None:
    for path in ("/v3/kv/put", "/version", "/members", "/raft"):
        assert post(port, path, None) in (0, 400)


@pytest.mark.parametrize("certificate", ["", "admin", "server", "ca"])
def test_no_certificate_of_the_cluster_opens_etcd(
    certificate: str, port: int, control_plane: Environment
) -> None:
    pki = control_plane.control_plane.pki
    tls = ssl.create_default_context(cafile=pki / "etcd-ca.crt")
    if certificate:
        tls.load_cert_chain(pki / f"{certificate}.crt", pki / f"{certificate}.key")
    with (
        socket.create_connection((HOST, port), timeout=10) as connection,
        pytest.raises(ssl.SSLError, match=r"CERTIFICATE_REQUIRED|UNKNOWN_CA|BAD_CERTIFICATE"),
        tls.wrap_socket(connection, server_hostname=HOST) as secured,
    ):
        secured.recv(1)


async def test_the_api_servers_certificate_opens_etcd_and_the_gateway_is_off(
    control_plane: Environment, live_client: LiveClient, namespace: str
) -> None:
    plane = control_plane.control_plane
    port = urlsplit(plane.etcd_url).port or 0
    assert post(port, "/version", plane.etcd_tls) == 405  # etcd serves this path, but only to GET
    assert post(port, "/v3/kv/put", plane.etcd_tls) == 404
    made = ConfigMap.from_dict({"metadata": {"namespace": namespace, "name": "c"}})
    assert (await live_client.create(made)).metadata.resource_version


def test_the_keys_are_private_and_the_key_of_etcds_authority_is_not_kept(control_plane: Environment) -> None:
    pki = control_plane.control_plane.pki
    assert pki.stat().st_mode & 0o777 == 0o700
    modes = {path.name: path.stat().st_mode & 0o777 for path in pki.iterdir()}
    assert {"etcd-ca.crt", "etcd.crt", "etcd.key", "etcd-client.crt", "etcd-client.key"} <= modes.keys()
    assert "etcd-ca.key" not in modes
    assert set(modes.values()) == {0o600}
