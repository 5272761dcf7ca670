# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A picture has what a command printed, and needs nothing from elsewhere."""

import xml.etree.ElementTree as ET
from pathlib import Path

from hack import recording

ROOT = Path(__file__).parents[3]


def shown(svg: str) -> str:
    assert "@font-face" not in svg
    return "".join(ET.fromstring(svg).itertext()).replace("\u00a0", " ")


def test_a_picture_has_the_commands_and_what_they_printed(tmp_path: Path) -> None:
    file, sample = tmp_path / "picture.svg", f"{ROOT}/config/samples/trainjob.yaml"
    commands = (f"trainerctl validate -f {sample}", f"trainerctl render -f {sample} -o table")
    assert recording.main([str(file), *commands]) == 0
    text = shown(file.read_text())
    assert "$ trainerctl validate" in text
    assert "$ trainerctl render" in text
    assert "JobSet" in text


def test_the_picture_that_is_kept_is_of_a_demo_that_completed() -> None:
    assert "is Complete" in shown((ROOT / "docs" / "demo.svg").read_text())
