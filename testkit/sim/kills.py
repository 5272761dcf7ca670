# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Managers that are killed at their writes: a manager must continue what an earlier process of its replica began."""

from __future__ import annotations

from collections.abc import Callable

from controller_runtime.rest import Request
from controller_runtime.simtest import Observer, Process, Simulation


class Kills(Observer):
    """Kills managers before requests are sent, which are then lost, and when they arrive, so that the answer is lost.

    ``is_hit`` chooses the requests; its last argument is False before a request is sent, and True when it arrives.
    """

    def __init__(self, sim: Simulation, is_hit: Callable[[Process, Request, bool], bool]) -> None:
        self._sim = sim
        self._is_hit = is_hit
        self._cut_off: Process | None = None
        """The killed process whose replica is cut off until its next process sends a request."""
        sim.network.observers.append(self)

    def release(self) -> None:
        """Connect a replica that is cut off."""
        if self._cut_off is not None:
            self._sim.network.cut_off.discard(self._cut_off.name)
            self._cut_off = None

    def sends(self, process: Process, request: Request) -> None:
        held = self._cut_off
        if held is not None and process is not held and process.name == held.name:
            self.release()
        if self._cut_off is None and self._is_hit(process, request, False):
            self._cut_off = process
            self._sim.network.cut_off.add(process.name)
            self._sim.kill(process.name)

    def arrives(self, process: Process, request: Request) -> None:
        if not process.dead and self._is_hit(process, request, True):
            self._sim.kill(process.name)
