# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import dataclasses

from trainerctl.localcluster.components import Ports


def test_every_server_of_a_cluster_gets_a_port_of_its_own() -> None:
    ports = dataclasses.astuple(Ports.choose())
    assert len(set(ports)) == len(ports)
