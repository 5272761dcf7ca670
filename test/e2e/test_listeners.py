# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The servers of a local cluster listen on loopback, and a client without a credential changes nothing."""

import http.client
import re
import ssl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import anyio.to_thread
import psutil
import pytest
import yaml
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.envtest import HOST
from trainerctl.localcluster.cluster import Cluster
from trainerctl.localcluster.options import Options
from trainerctl.localcluster.state import State

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

RunCluster = Callable[[Options], AbstractContextManager[Cluster]]
OPTIONS = {
    "simulated": Options(nodes=1),
    "processes": Options(nodes=1, run_processes=True, manager_gates={"TrainJobStatus": True}),
    "others": Options(nodes=1, coscheduling=True, prometheus=True),
}
POD = b"""{"metadata": {"name": "intruder", "namespace": "default", "key": "eA==", "value": "eA=="},
"spec": {"containers": [{"name": "c", "image": "i"}]}, "key": "eA==", "value": "eA=="}"""
HEADERS = {"Content-Type": "text/plain", "Origin": "http://example.com"}
CHANGES = [
    ("POST", "/v3/kv/put"),
    ("POST", "/v3/maintenance/snapshot"),
    ("POST", "/members"),
    ("POST", "/api/v1/namespaces/default/pods"),
    ("PUT", "/api/v1/namespaces/default/pods/intruder"),
    ("DELETE", "/api/v1/namespaces/default/serviceaccounts/default"),
    ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
    ("POST", "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs/intruder/status"),
    ("POST", "/run/default/intruder/c?cmd=id"),
    ("POST", "/exec/default/intruder/c?command=id&output=1"),
    ("POST", "/attach/default/intruder/c?output=1"),
    ("POST", "/portForward/default/intruder?port=1"),
    ("GET", "/containerLogs/default/intruder/c"),
    ("POST", "/debug/pprof/heap?gc=1"),
    ("PUT", "/debug/flags/v"),
    ("POST", "/configz"),
    ("POST", "/-/reload"),
    ("PUT", "/-/quit"),
    ("POST", "/api/v1/admin/tsdb/delete_series?match[]=up"),
    ("POST", "/api/v1/admin/tsdb/snapshot"),
    ("POST", "/api/v1/write"),
]
PROFILE = ("prometheus", "POST http /debug/pprof/heap?gc=1")
"""Prometheus always serves its profiles, which change nothing."""


def documented() -> set[tuple[str, str]]:
    """Return the program and the setting of each listener in the table of ``SECURITY.md``."""
    text = (
        (Path(__file__).parents[2] / "SECURITY.md")
        .read_text()
        .partition("## The local cluster's listeners")[2]
    )
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return {(program, row[1].strip("`")) for row in rows for program in re.findall("`([^`]+)`", row[0])}


def settings(tree: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path and the value of each leaf of a configuration."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from settings(value, f"{path}.{key}" if path else key)
    else:
        yield path, str(tree)


def setting_of(argv: list[str], port: int) -> str:
    """Return the flag, or the key of the configuration file, that has the port."""
    flags = [(flag, value) for flag, _, value in (word.partition("=") for word in argv)]
    named = flags + [
        pair
        for flag, value in flags
        if flag == "--config"
        for document in yaml.safe_load_all(Path(value).read_text())
        for pair in settings(document)
    ]
    return next((name for name, value in named if re.search(rf"(^|:){port}$", value)), f"port {port}")


def listeners(cluster: Cluster) -> Iterator[tuple[str, str, str, int]]:
    """Yield program, setting, address and port of each listening socket of a cluster."""
    state = State.read(cluster.directory)
    assert state is not None
    argv = {each.name: list(each.argv) for each in state.components}
    for name, process in cluster.supervisor.processes.items():
        root = psutil.Process(process.identity.pid)
        for each in (root, *root.children(recursive=True)):
            for socket in each.net_connections("inet"):
                if socket.status in (psutil.CONN_LISTEN, psutil.CONN_NONE):
                    yield name, setting_of(argv[name], socket.laddr.port), socket.laddr.ip, socket.laddr.port


def answers(port: int, pki: Path | None = None) -> dict[str, int]:
    """Return the status code of the response to each request, with and without TLS; 0 without a response.

    With ``pki``, the client has the administrator's certificate.
    """
    unverified = ssl.create_default_context()
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE
    if pki is not None:
        unverified.load_cert_chain(pki / "admin.crt", pki / "admin.key")
    found = {}
    for scheme in ("http", "https"):
        for method, path in CHANGES:
            connection = (
                http.client.HTTPConnection(HOST, port, timeout=10)
                if scheme == "http"
                else http.client.HTTPSConnection(HOST, port, timeout=10, context=unverified)
            )
            found[f"{method} {scheme} {path}"] = 0
            with suppress(OSError, http.client.HTTPException):
                connection.request(method, path, POD, HEADERS)
                found[f"{method} {scheme} {path}"] = connection.getresponse().status
            connection.close()
    return found


@pytest.fixture(scope="module", params=OPTIONS)
def cluster(request: pytest.FixtureRequest, run_cluster: RunCluster) -> Iterator[Cluster]:
    with run_cluster(OPTIONS[request.param]) as running:
        yield running


async def test_every_listener_is_known_on_loopback_and_changes_nothing_for_strangers(
    cluster: Cluster,
) -> None:
    found = list(listeners(cluster))
    assert {(program, setting) for program, setting, _, _ in found} <= documented()
    assert {program for program, *_ in found} == set(cluster.supervisor.processes)
    assert {address for _, _, address, _ in found} == {HOST}
    for program, setting, _, port in found:
        said = await anyio.to_thread.run_sync(answers, port)
        accepted = {
            request: status
            for request, status in said.items()
            if 0 < status < 400 and (program, request) != PROFILE
        }
        assert not accepted, f"{program} {setting}"
    async with cluster.client() as client:
        assert not await client.list(Pod, namespace="default")
    assert await cluster.is_up()


def test_etcd_and_the_kubelets_answer_the_api_server_alone(cluster: Cluster) -> None:
    for program, setting, _, port in listeners(cluster):
        if program in {"etcd", "pod-logs", "process-kubelet"}:
            said = answers(port, cluster.directory / "pki")
            assert not {request for request, status in said.items() if status not in (0, 400)}, setting


def test_only_the_owner_can_open_the_state_of_a_cluster(cluster: Cluster) -> None:
    assert cluster.directory.stat().st_mode & 0o777 == 0o700
    files = [path for path in cluster.directory.rglob("*") if path.is_file()]
    database = (
        cluster.directory / "prometheus" / "data"
    )  # Prometheus writes these files, with modes by the umask
    assert not [each for each in files if each.stat().st_mode & 0o077 and database not in each.parents]
