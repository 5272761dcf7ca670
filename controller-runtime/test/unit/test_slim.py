# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The step that makes an image small, on a copy of the installed distribution."""

import importlib.util
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from controller_runtime import slim

_LOAD = """
import asyncio, json, sys
from controller_runtime import rest
from controller_runtime.rest import kubeconfig_import
found = kubeconfig_import.modules()
assert found.kube_config.__file__.startswith(sys.argv[1]), found.kube_config.__file__
cluster = {"server": "https://c.test"}
data = {
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    "clusters": [{"name": "c", "cluster": cluster}],
    "users": [{"name": "u", "user": {"token": "t"}}],
}
config = asyncio.run(rest.Config.from_kubeconfig_dict(data))
print(asyncio.run(config.credentials.headers())["Authorization"])
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with kubernetes-asyncio, all but its models."""
    spec = importlib.util.find_spec(slim.PACKAGE)
    assert spec is not None
    assert spec.submodule_search_locations
    source = Path(spec.submodule_search_locations[0])
    ignore = shutil.ignore_patterns("models", "__pycache__")
    shutil.copytree(source, tmp_path / slim.PACKAGE, ignore=ignore)
    return tmp_path


@pytest.mark.real_time
def test_kubeconfigs_are_read_with_what_is_left(installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert slim.main([str(installed)]) == 0
    assert capsys.readouterr().out.startswith("removed ")
    left = {each.name for each in (installed / slim.PACKAGE).iterdir() if each.is_dir()}
    assert left == {"config"}
    assert slim.slim(installed) == 0
    answer = subprocess.run(
        [sys.executable, "-c", _LOAD, str(installed)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": f"{installed}:{Path(__file__).parents[2]}"},
    )
    assert answer.stdout == "Bearer t\n"


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["/nowhere"], 1, "slim: no kubernetes_asyncio with a package config in /nowhere\n"),
        (["--help"], 2, "usage: python -m controller_runtime.slim [FOLDER]\n"),
        (["a", "b"], 2, "usage: python -m controller_runtime.slim [FOLDER]\n"),
    ],
)
def test_what_cannot_be_done_is_said(
    arguments: list[str], code: int, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (slim.main(arguments), capsys.readouterr().err) == (code, error)


def test_libraries_are_loaded_without_what_debuggers_read(tmp_path: Path) -> None:
    spec = importlib.util.find_spec("yaml._yaml")
    assert spec is not None
    assert spec.origin is not None
    installed = Path(spec.origin)
    copy = tmp_path / "yaml"
    shutil.copytree(installed.parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    library = copy / installed.name
    library.chmod(0o755)
    before = library.stat().st_size
    freed = slim.strip(tmp_path)
    assert library.stat().st_size == before - freed
    assert library.stat().st_mode & 0o777 == 0o755
    assert b".debug_info" not in library.read_bytes()
    assert freed > before / 2  # its wheel ships debug information
    code = "import yaml._yaml; print(yaml._yaml.__file__); print(yaml.load('{a: [1]}', yaml.CSafeLoader))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{library}\n{{'a': [1]}}\n"
    assert slim.strip(tmp_path) == 0


@pytest.mark.parametrize(
    "content", [b"", b"#!/bin/sh\n", b"\x7fELF\x02\x01", b"\x7fELF\x01\x01" + bytes(100)]
)
def test_other_files_stay_as_they_are(content: bytes) -> None:
    assert slim.stripped(content) == content


def test_bytes_between_segments_are_zero_and_section_headers_are_removed() -> None:
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 64, 190, 0, 64, 56, 1, 64, 3, 2
    )
    segment = struct.pack("<IIQQQQQQ", 1, 5, 140, 0, 0, 20, 20, 1)
    short = slim.stripped(header + segment + b"x" * 20 + b"c" * 20 + b"symbols" * 50)
    assert short[120:] == bytes(20) + b"c" * 20
    assert struct.unpack_from("<Q", short, 40) == (0,)
    assert struct.unpack_from("<HHH", short, 58) == (64, 0, 0)
    assert slim.stripped(short) == short
