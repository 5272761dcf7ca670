# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Ports are reserved from the moment they are chosen until their servers listen."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

from controller_runtime.envtest import free_ports


def test_two_calls_do_not_choose_the_same_port_before_its_server_listens(tmp_path: Path) -> None:
    first = free_ports(5, choose=random.Random(7), reservations=tmp_path)
    second = free_ports(5, choose=random.Random(7), reservations=tmp_path)
    assert not set(first) & set(second)


def test_a_reservation_ends_when_its_server_should_have_started(tmp_path: Path) -> None:
    (first,) = free_ports(1, choose=random.Random(7), reservations=tmp_path)
    long_ago = time.time() - 300
    os.utime(tmp_path / str(first), (long_ago, long_ago))
    assert free_ports(1, choose=random.Random(7), reservations=tmp_path) == [first]
