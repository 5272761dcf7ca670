# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Images: each stands for a folder with programs of this machine, by default the folder of trainerctl's Python."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_PROGRAMS: Final = ("python", "python3", "pip", "pip3")
_STAND_IN: Final = "torchrun"
_SYSTEM: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def parse(text: str) -> tuple[str, Path]:
    """Return the image and the folder of ``NAME=FOLDER``.

    Raises:
        ValueError: the text does not have this form, or the folder has no Python.
    """
    name, equals, folder = text.partition("=")
    path = Path(folder).expanduser().absolute()
    if not (name and equals and folder):
        raise ValueError(
            f"{text!r} must be IMAGE=FOLDER, where FOLDER has the programs of a virtual environment"
        )
    if not any(os.access(path / program, os.X_OK) for program in ("python", "python3")):
        raise ValueError(f"{path} has no executable python")
    return name, path


def name_of(image: str) -> str:
    """Return an image without its tag and digest."""
    name = image.partition("@")[0]
    head, colon, tag = name.rpartition(":")
    return head if colon and "/" not in tag else name


@dataclass(frozen=True)
class Images:
    """The folders of images. Scripts for programs that a folder lacks are written below ``stand_ins``."""

    stand_ins: Path
    folders: Mapping[str, Path] = field(default_factory=dict)
    default: Path = field(default_factory=lambda: Path(sys.executable).parent)

    def folder(self, image: str) -> Path:
        return self.folders.get(image) or self.folders.get(name_of(image)) or self.default

    def search_path(self, image: str) -> str:
        """Return the PATH of an image's containers, after making sure that ``python`` and ``torchrun`` are on it."""
        folder = self.folder(image)
        stand_ins = self._stand_ins(folder)
        mine = os.environ.get("PATH") or _SYSTEM
        return os.pathsep.join([str(folder), *([str(stand_ins)] if stand_ins else []), mine])

    def _stand_ins(self, folder: Path) -> Path | None:
        """Write scripts for the programs that ``folder`` lacks, and return their folder."""
        python = next((folder / name for name in ("python", "python3") if (folder / name).exists()), None)
        scripts: dict[str, str] = {}
        if python is None:
            return None
        for name in _PROGRAMS:
            if not (folder / name).exists():
                module = " -m pip" if name.startswith("pip") else ""
                scripts[name] = f'#!/bin/sh\nexec "{python}"{module} "$@"\n'
        if not (folder / _STAND_IN).exists():
            script = Path(__file__).parent / "torchrun.py"
            scripts[_STAND_IN] = f'#!/bin/sh\nexec "{python}" "{script}" "$@"\n'
        if not scripts:
            return None
        into = self.stand_ins / str(folder).strip("/").replace("/", "-")
        into.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, script_text in scripts.items():
            path = into / name
            if not path.exists() or path.read_text() != script_text:
                path.write_text(script_text)
                path.chmod(0o700)
        return into
