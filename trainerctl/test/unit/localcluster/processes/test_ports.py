# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Ports of jobs that run as local processes."""

import itertools
import socket
from collections.abc import Collection

import pytest
from controller_runtime.apis.core.v1 import Pod

from trainerctl.localcluster.processes.ports import Ports, group_of, is_free, replace_ports


def _pod(job: str, number: int = 0) -> Pod:
    container = {"name": "node", "ports": [{"containerPort": 29500}]}
    metadata = {"name": f"{job}-{number}", "namespace": "team"}
    return Pod.from_dict({"metadata": metadata, "spec": {"subdomain": job, "containers": [container]}})


def _ports(busy: Collection[int] = ()) -> Ports:
    numbers = itertools.count(20000)
    return Ports(lambda port: port not in busy, lambda: next(numbers))


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("29500", "1"),
        ("job-node-0-0.job:29500", "job-node-0-0.job:1"),
        ("--rdzv_endpoint=a:29500", "--rdzv_endpoint=a:1"),
        ("tcp://a:29500/x?y", "tcp://a:1/x?y"),
        ("129500", "129500"),
        ("295001", "295001"),
        ("29500 steps", "29500 steps"),
        ("steps=29500", "steps=29500"),
        ("29500:x", "29500:x"),
        (":29500.5", ":29500.5"),
    ],
)
def test_only_ports_are_replaced(text: str, want: str) -> None:
    assert replace_ports(text, {29500: 1}) == want


def test_the_pods_of_a_job_share_the_declared_port_while_it_is_free() -> None:
    ports = _ports()
    assert ports.of(_pod("a"), {("team", "a")}) == {}
    assert ports.of(_pod("a", 1), {("team", "a")}) == {}


def test_the_pods_of_a_second_job_share_another_port() -> None:
    ports, running = _ports(), {("team", "a"), ("team", "b")}
    assert ports.of(_pod("a"), running) == {}
    assert ports.of(_pod("b"), running) == {29500: 20000}
    assert ports.of(_pod("b", 1), running) == {29500: 20000}
    assert ports.of(_pod("a", 1), running) == {}


def test_a_port_is_free_again_when_its_job_has_ended() -> None:
    ports = _ports()
    assert ports.of(_pod("a"), {group_of(_pod("a"))}) == {}
    assert ports.of(_pod("b"), {group_of(_pod("b"))}) == {}


def test_a_port_that_another_program_uses_is_replaced() -> None:
    assert _ports(busy={29500}).of(_pod("a"), set()) == {29500: 20000}
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not is_free(server.getsockname()[1])


def test_a_pod_without_a_service_keeps_its_ports() -> None:
    pod = Pod.from_dict(
        {
            "metadata": {"name": "web"},
            "spec": {"containers": [{"name": "x", "ports": [{"containerPort": 80}]}]},
        }
    )
    assert _ports(busy={80}).of(pod, set()) == {}
