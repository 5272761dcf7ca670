# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A screencast draws each line, and shows it at the time when it was printed."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

from hack.recording import Screencast

DEMO = Path(__file__).parents[3] / "docs" / "demo.svg"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_line_appears_when_it_was_printed_and_a_step_when_it_was_taken() -> None:
    clock = Clock()
    screencast = Screencast(clock=clock)
    screencast.console.print("$ demo")
    clock.now += 2
    screencast.console.print("up")
    clock.now += 1
    screencast.console.print("TrainJob a/b: 1 nodes")
    clock.now += 5
    for line in ("✓ TrainJob created    0.25 s", "✓ TrainJob complete   4.00 s", "done"):
        screencast.console.print(line, highlight=False)
    assert screencast.times() == [0.0, 2.0, 3.0, 3.25, 7.0, 8.0]
    svg = screencast.svg()
    shown = dict(re.findall(r'line-(\d+)\)" style="animation: hidden ([\d.]+)s"', svg))
    assert shown == {"1": "2.00", "2": "3.00", "3": "3.25", "4": "7.00", "5": "8.00"}


def test_a_picture_needs_nothing_from_elsewhere() -> None:
    screencast = Screencast()
    screencast.console.print("text")
    svg = screencast.svg()
    ET.fromstring(svg)
    assert "@font-face" not in svg
    assert "text" in "".join(ET.fromstring(svg).itertext())


def test_the_picture_that_is_kept_is_of_a_demo_that_completed() -> None:
    text = "".join(ET.fromstring(DEMO.read_text()).itertext()).replace("\u00a0", " ")
    assert "is Complete" in text
    assert "@keyframes hidden" in DEMO.read_text()
