# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Components that are started again."""

from pathlib import Path

import pytest
from controller_runtime.envtest import HOST, Component, ComponentError, Probe, Supervisor, free_ports

from trainerctl.localcluster.restart import restart
from trainerctl.localcluster.state import State


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
