# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The command lines, configurations and access of the components, and their restart."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from controller_runtime.apis.authentication.v1 import TokenRequest
from controller_runtime.client import interceptor
from controller_runtime.envtest import (
    CERTIFICATE_LIFETIME,
    HOST,
    Binary,
    Component,
    ComponentError,
    ControlPlane,
    Probe,
    Supervisor,
    free_ports,
)
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Object
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from trainerctl.localcluster import prometheus
from trainerctl.localcluster.access import write_kubeconfig
from trainerctl.localcluster.components import STAGES, Parts, Ports, api_server_flags
from trainerctl.localcluster.options import Options
from trainerctl.localcluster.restart import restart
from trainerctl.localcluster.state import State

NAMES = ("coscheduling-scheduler", "kwok")


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    plane = ControlPlane(tmp_path, {}, Supervisor(tmp_path, tied=True), data=tmp_path / "data")
    return Parts(tmp_path, plane, {name: Binary(tmp_path / name) for name in NAMES}, Ports.choose())


def test_the_coscheduler_schedules_the_pods_that_name_no_scheduler_in_gangs(parts: Parts) -> None:
    (path,) = (
        flag.partition("=")[2] for flag in parts.coscheduler().argv if str(flag).startswith("--config=")
    )
    config: dict[str, Any] = yaml.safe_load(Path(path).read_text())
    (profile,) = config["profiles"]
    assert profile["schedulerName"] == "default-scheduler"
    assert profile["plugins"]["multiPoint"] == {"enabled": [{"name": "Coscheduling"}]}
    assert config["clientConnection"] == {"kubeconfig": str(parts.kubeconfig("kube-scheduler"))}


@pytest.mark.parametrize("version", ["2.1", "2.3"])
def test_the_manager_behaves_like_the_chosen_release(parts: Parts, version: str) -> None:
    parts = replace(parts, options=Options(compatibility_version=version))
    (path,) = (flag.partition("=")[2] for flag in parts.manager().argv if str(flag).startswith("--config="))
    assert yaml.safe_load(Path(path).read_text())["compatibilityVersion"] == version


def test_the_nodes_of_simulated_pods_follow_the_stages_under_users_of_their_own(parts: Parts) -> None:
    kwok, logs = parts.nodes()
    assert {f"--config={STAGES}", f"--kubeconfig={parts.kubeconfig('kwok')}"} <= set(kwok.argv)
    assert f"--kubeconfig={parts.kubeconfig('pod-logs')}" in logs.argv


def test_the_api_server_presents_a_certificate_of_an_authority_of_its_own_to_the_servers_of_other_apis(
    parts: Parts,
) -> None:
    parts.write_certificates()
    flags = dict(flag.removeprefix("--").split("=", 1) for flag in api_server_flags(parts.directory))

    assert all(Path(flags[name]).is_file() for name in flags if name.endswith("-file"))
    authority = x509.load_pem_x509_certificate(Path(flags["requestheader-client-ca-file"]).read_bytes())
    presented = x509.load_pem_x509_certificate(Path(flags["proxy-client-cert-file"]).read_bytes())
    presented.verify_directly_issued_by(authority)
    assert authority.public_bytes(Encoding.PEM) != parts.plane.authority.certificate
    (name,) = presented.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert name.value == flags["requestheader-allowed-names"]


def test_prometheus_scrapes_the_manager_evaluates_the_alerts_and_serves_no_other_site(tmp_path: Path) -> None:
    component = prometheus.component(Path("/prometheus"), tmp_path, 9090, 8443)

    flags = dict(flag.removeprefix("--").split("=", 1) for flag in map(str, component.argv[1:]))
    config: dict[str, Any] = yaml.safe_load(Path(flags["config.file"]).read_text())
    (scraped,) = config["scrape_configs"]
    assert scraped["static_configs"] == [{"targets": ["127.0.0.1:8443"]}]
    (rules,) = (yaml.safe_load(Path(path).read_text()) for path in config["rule_files"])
    assert any("alert" in rule for group in rules["groups"] for rule in group["rules"])
    page = Path(flags["web.console.templates"], Path(prometheus.PAGE).name).read_text()
    assert all(query in page for title, texts in prometheus.queries() for query in (title, f"`{texts[0]}`"))
    assert flags["storage.tsdb.path"].startswith(f"{tmp_path}/")
    assert (flags["web.listen-address"], flags["web.cors.origin"]) == ("127.0.0.1:9090", "^$")
    assert component.ready is not None
    assert component.ready.url == "http://127.0.0.1:9090/-/ready"


async def test_a_token_is_valid_as_long_as_the_cluster_s_certificates(tmp_path: Path) -> None:
    requested: list[dict[str, Any]] = []

    async def answer(client: Any, name: str, owner: Object, body: Object) -> Object:
        requested.append(body.to_dict())
        return TokenRequest.from_dict({"status": {"token": "secret"}})

    client: Any = interceptor.wrap(FakeClient(), interceptor.Funcs(subresource_create=answer))
    path = await write_kubeconfig(
        client, tmp_path / "m.kubeconfig", "https://127.0.0.1:1", b"ca", namespace="team", name="manager"
    )
    assert requested[0]["spec"]["expirationSeconds"] == CERTIFICATE_LIFETIME.total_seconds()
    assert yaml.safe_load(path.read_bytes())["users"][0]["user"]["token"] == "secret"


@pytest.mark.real_time
async def test_a_store_that_ends_is_named_instead_of_the_server_that_waits_for_it(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    etcd = Component("etcd", ["/bin/sh", "-c", "echo address already in use; exit 1"])
    server = Component("kube-apiserver", ["/bin/sleep", "6802"], Probe(f"http://{HOST}:{port}/readyz"))
    kept = State(f"https://{HOST}:{port}", "", 0, [etcd, server])
    supervisor = Supervisor(tmp_path, tied=True)
    with pytest.raises(ComponentError, match=r"etcd exited with code 1[\s\S]*address already in use"):
        await restart(tmp_path, kept, supervisor, timeout=5)
    assert not supervisor.processes


@pytest.mark.real_time
async def test_components_that_ended_before_do_not_end_the_restart_of_others(tmp_path: Path) -> None:
    ended = Component("kube-scheduler", ["/bin/sh", "-c", "exit 1"])
    first = Supervisor(tmp_path, tied=False)
    assert await first.start(ended).wait(10)
    supervisor = Supervisor(tmp_path, tied=True)
    supervisor.adopt()
    again = Component("kube-scheduler", ["/bin/sleep", "6802"])
    try:
        assert await restart(tmp_path, State("", "", 0, [again]), supervisor, timeout=5) == ["kube-scheduler"]
        assert supervisor.processes["kube-scheduler"].poll() is None
    finally:
        supervisor.kill()
