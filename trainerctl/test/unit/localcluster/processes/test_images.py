# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Images of containers that run as local processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainerctl.localcluster.processes import images
from trainerctl.localcluster.processes.images import Images


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "bin"
    made.mkdir()
    (made / "python").symlink_to(sys.executable)
    return made


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("pytorch/pytorch:2.7", "pytorch/pytorch"),
        ("localhost:5000/a/b", "localhost:5000/a/b"),
        ("localhost:5000/a/b:1", "localhost:5000/a/b"),
        ("a@sha256:123", "a"),
        ("a:1@sha256:123", "a"),
        ("a", "a"),
    ],
)
def test_an_image_is_known_without_its_tag(image: str, name: str) -> None:
    assert images.name_of(image) == name


def test_an_image_with_its_tag_wins_over_its_name(tmp_path: Path) -> None:
    made = Images(tmp_path, {"a": Path("/a"), "a:2": Path("/a2")}, default=Path("/default"))
    assert [made.folder(each) for each in ("a:1", "a:2", "b")] == [Path("/a"), Path("/a2"), Path("/default")]


def test_programs_that_a_folder_lacks_have_stand_ins(tmp_path: Path, folder: Path) -> None:
    first, second, *_ = Images(tmp_path / "programs", default=folder).search_path("x").split(os.pathsep)
    assert first == str(folder)
    assert sorted(path.name for path in Path(second).iterdir()) == ["pip", "pip3", "python3", "torchrun"]
    done = subprocess.run([f"{second}/python3", "-c", "print(1)"], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


def test_a_torchrun_of_the_folder_is_used(tmp_path: Path, folder: Path) -> None:
    (folder / "torchrun").touch()
    second = Images(tmp_path / "programs", default=folder).search_path("x").split(os.pathsep)[1]
    assert "torchrun" not in {path.name for path in Path(second).iterdir()}


@pytest.mark.parametrize("text", ["a", "=x", "a=", "a=/nonexistent"])
def test_a_folder_must_have_a_python(text: str) -> None:
    with pytest.raises(ValueError, match=r"IMAGE=FOLDER|no executable python"):
        images.parse(text)
