# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Addresses and host names of pods that run as local processes."""

import ipaddress
from pathlib import Path
from typing import Any

import pytest
from controller_runtime.apis.core.v1 import Pod

from trainerctl.localcluster import manifests
from trainerctl.localcluster.processes import names
from trainerctl.localcluster.processes.names import Hosts, address, replace_names


def _pod(name: str, namespace: str = "team", **spec: Any) -> Pod:
    return Pod.from_dict({"metadata": {"name": name, "namespace": namespace}, "spec": spec})


def _node(number: int) -> Pod:
    return _pod(f"job-node-0-{number}-x", hostname=f"job-node-0-{number}", subdomain="job")


def test_each_host_name_has_a_loopback_address_of_its_own() -> None:
    found = [address(_node(number), "cluster") for number in range(200)]
    assert len(set(found)) == 200
    assert all(ipaddress.ip_address(each) in ipaddress.ip_network("127.64.0.0/10") for each in found)


def test_a_pod_that_replaces_another_has_its_address() -> None:
    first = _pod("job-node-0-0-aaa", hostname="job-node-0-0", subdomain="job")
    second = _pod("job-node-0-0-bbb", hostname="job-node-0-0", subdomain="job")
    assert address(first, "c") == address(second, "c")
    assert address(first, "c") != address(first, "d")


def test_the_hosts_file_has_the_names_of_the_service_and_those_of_the_machine(tmp_path: Path) -> None:
    machine = tmp_path / "machine"
    machine.write_text("127.0.0.1 localhost\n10.0.0.1 data")
    hosts = Hosts(tmp_path / "hosts", machine)
    for _ in range(2):
        hosts.add(_node(0), "c")
    path = hosts.add(_pod("web", hostAliases=[{"ip": "10.1.1.1", "hostnames": ["a", "b"]}]), "c")
    lines = path.read_text().splitlines()
    assert lines[:2] == ["127.0.0.1 localhost", "10.0.0.1 data"]
    (line,) = [each for each in lines if each.startswith(f"{address(_node(0), 'c')}\t")]
    assert {"job-node-0-0", "job-node-0-0.job", "job", "job-node-0-0.job.team.svc.cluster.local"} <= set(
        line.split()
    )
    assert "10.1.1.1\ta b" in lines
    assert hosts.path("other") != path


@pytest.mark.parametrize("known", [0, 1])
def test_a_line_that_could_not_be_written_is_written_later(tmp_path: Path, known: int) -> None:
    hosts = Hosts(tmp_path / "hosts", Path("/dev/null"))
    for number in range(known):
        hosts.add(_node(number), "c")
    path = hosts.path("team")
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        hosts.add(_node(known), "c")
    path.unlink()
    hosts.add(_node(known), "c")
    found = path.read_text()
    assert all(f"{address(_node(number), 'c')}\t" in found for number in range(known + 1))
    assert manifests.TRAINER_SERVER in found


def test_names_are_replaced_where_they_stand_alone() -> None:
    addresses = {"job-node-0-0.job": "127.64.0.1", "job-node-0-0.job.team": "127.64.0.1"}
    text = "tcp://job-node-0-0.job:29500 xjob-node-0-0.job job-node-0-0.job.team job-node-0-0.jobs"
    want = "tcp://127.64.0.1:29500 xjob-node-0-0.job 127.64.0.1 job-node-0-0.jobs"
    assert replace_names(text, addresses) == want


def test_a_host_name_is_that_of_the_spec_or_of_the_pod() -> None:
    assert names.host_name(_pod("web")) == "web"
    assert names.host_name(_pod("web", hostname="db")) == "db"
    assert len(names.host_name(_pod("w" * 80))) == 63
