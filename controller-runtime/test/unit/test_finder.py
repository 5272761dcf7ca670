# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Modules are found where Python's finder finds them, and bytecode that needs no check is read without one."""

import importlib
import importlib.machinery
import importlib.util
import inspect
import os
import py_compile
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller_runtime import finder

_NAMES = ("plain", "package", "both", "space", "suffixed", "file", "odd", "second", "archived", "absent")


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """Folders with a module of each sort, which are the path of the process."""
    one, two, missing, archive = (tmp_path / name for name in ("one", "two", "missing", "archive.zip"))
    for folder in (one / "package" / "below", one / "both", one / "space", one / "odd", two / "space"):
        folder.mkdir(parents=True)
    for file in (
        "plain.py",
        "package/__init__.py",
        "package/below/__init__.py",
        "package/leaf.py",
        "both.py",
    ):
        (one / file).write_text(f"FILE = {file!r}\n")
    (one / "both" / "__init__.py").write_text("FILE = 'package both'\n")
    (one / f"suffixed{importlib.machinery.EXTENSION_SUFFIXES[0]}").write_bytes(b"")
    (one / "suffixed.py").write_text("")
    (one / "odd" / f"__init__{importlib.machinery.EXTENSION_SUFFIXES[0]}").write_bytes(b"")
    (one / "odd" / "__init__.py").write_text("")
    (one / "file").write_text("")
    (two / "file.py").write_text("")
    (two / "second.py").write_text("")
    (two / "plain.py").write_text("")
    with zipfile.ZipFile(archive, "w") as content:
        content.writestr("archived.py", "")
    path = [missing, one, two, archive]
    monkeypatch.setattr(sys, "path", [*map(str, path), *sys.path])
    yield path
    for name in [name for name in sys.modules if name.partition(".")[0] in _NAMES]:
        del sys.modules[name]


@pytest.mark.parametrize("name", _NAMES)
def test_modules_are_found_where_python_finds_them(name: str, folders: list[Path]) -> None:
    expected = importlib.util.find_spec(name)
    with finder.listing_once():
        found = importlib.util.find_spec(name)
    if expected is None or found is None:
        assert found is expected
        return
    assert (found.name, found.origin, found.cached) == (expected.name, expected.origin, expected.cached)
    assert list(found.submodule_search_locations or ()) == list(expected.submodule_search_locations or ())
    assert found.has_location == expected.has_location
    assert isinstance(found.loader, type(expected.loader))


def test_modules_in_packages_are_found_below_them(folders: list[Path]) -> None:
    with finder.listing_once():
        leaf = importlib.import_module("package.leaf")
        below = importlib.import_module("package.below")
        both = importlib.import_module("both")
    assert (leaf.FILE, below.FILE, both.FILE) == (
        "package/leaf.py",
        "package/below/__init__.py",
        "package both",
    )
    assert {type(each.__loader__).__module__ for each in (leaf, below, both)} == {finder.__name__}
    assert leaf.__file__ == str(folders[1] / "package" / "leaf.py")
    assert inspect.getsource(leaf) == "FILE = 'package/leaf.py'\n"


def test_folders_are_listed_again_after_the_caches_are_invalidated(folders: list[Path]) -> None:
    with finder.listing_once():
        assert importlib.util.find_spec("absent") is None
        (folders[1] / "second.py").write_text("FILE = 'new'\n")
        importlib.invalidate_caches()
        assert importlib.import_module("second").FILE == "new"
    assert not [each for each in sys.meta_path if type(each).__module__ == finder.__name__]


def _compiled(file: Path, mode: py_compile.PycInvalidationMode) -> None:
    py_compile.compile(str(file), invalidation_mode=mode, doraise=True)


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("mode", "options", "expected"),
    [
        (py_compile.PycInvalidationMode.UNCHECKED_HASH, [], "old"),
        (py_compile.PycInvalidationMode.CHECKED_HASH, [], "new!"),
        (py_compile.PycInvalidationMode.TIMESTAMP, [], "new!"),
        (py_compile.PycInvalidationMode.UNCHECKED_HASH, ["--check-hash-based-pycs", "always"], "new!"),
    ],
)
def test_only_bytecode_that_needs_no_check_is_used_without_its_source(
    mode: py_compile.PycInvalidationMode, options: list[str], expected: str, folders: list[Path]
) -> None:
    file = folders[1] / "plain.py"
    file.write_text("FILE = 'old'\n")
    _compiled(file, mode)
    file.write_text("FILE = 'new!'\n")
    os.utime(file, (1, 1))
    probe = (
        "import sys; sys.path.insert(0, sys.argv[1]); from controller_runtime import finder\n"
        "with finder.listing_once():\n    import plain\nprint(plain.FILE)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPYCACHEPREFIX"}
    command = [sys.executable, *options, "-c", probe, str(folders[1])]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert answer.stdout.strip() == expected


def test_bytecode_of_another_place_names_the_source_it_is_found_beside(folders: list[Path]) -> None:
    file = folders[1] / "plain.py"
    file.write_text("def function():\n    pass\n")
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(file), dfile="/elsewhere/plain.py", invalidation_mode=unchecked, doraise=True)
    with finder.listing_once():
        module = importlib.import_module("plain")
    assert module.function.__code__.co_filename == str(file)
