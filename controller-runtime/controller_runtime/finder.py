# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A finder of modules for a program's start: each folder is listed once, and files are read without a check before.

Python's finder asks the file system six times for a module: whether its folder has changed, for each kind of file that
a package may begin with, and when the source was written. :func:`listing_once` assumes that folders do not change.
Bytecode that needs no check, as images have it (``compileall --invalidation-mode unchecked-hash``), is read without a
look at the source.

It finds what Python's finder finds. Modules other than source files, such as extensions, are left to that.
"""

from __future__ import annotations

import _imp
import io
import marshal
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import MAGIC_NUMBER, cache_from_source, spec_from_file_location
from types import CodeType
from typing import Final

_UNCHECKED: Final = MAGIC_NUMBER + b"\x01\x00\x00\x00"
"""The first bytes of bytecode that is used without a check of its source."""
_HEADER: Final = 16
_SOURCE: Final = 1
_BARE: Final = 2
_OTHER: Final = 4
"""Files of a name: ``name.py``, ``name`` (a folder perhaps), and any other, such as ``name.abi3.so``."""


@contextmanager
def listing_once() -> Iterator[None]:
    """Find modules by lists of their folders within the block; folders must not change meanwhile."""
    finder = _Finder()
    if PathFinder not in sys.meta_path:
        yield
        return
    sys.meta_path.insert(sys.meta_path.index(PathFinder), finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Finder:
    def __init__(self) -> None:
        self._folders: dict[str, dict[str, int] | None] = {}

    def find_spec(
        self, name: str, path: Iterable[str] | None = None, target: object = None
    ) -> ModuleSpec | None:
        """Return the module's specification; None leaves the module to the next finder."""
        stem = name.rpartition(".")[2]
        for entry in sys.path if path is None else path:
            if not isinstance(entry, str) or not entry.startswith("/"):
                return None
            folder = entry.rstrip("/")
            listed = self._listed(folder)
            found = _OTHER if listed is None else listed.get(stem, 0)
            if found & _OTHER:
                return None
            if found & _BARE:
                return self._package(name, f"{folder}/{stem}")
            if found:
                file = f"{folder}/{stem}.py"
                return spec_from_file_location(name, file, loader=_Loader(name, file))
        return None

    def invalidate_caches(self) -> None:
        """List all folders again."""
        self._folders.clear()

    def _package(self, name: str, folder: str) -> ModuleSpec | None:
        if (self._listed(folder) or {}).get("__init__") != _SOURCE:
            return None
        file = f"{folder}/__init__.py"
        return spec_from_file_location(
            name, file, loader=_Loader(name, file), submodule_search_locations=[folder]
        )

    def _listed(self, folder: str) -> dict[str, int] | None:
        """Return the files in ``folder`` by the first part of their names; None if it is not a readable folder."""
        if folder not in self._folders:
            self._folders[folder] = _list(folder)
        return self._folders[folder]


def _list(folder: str) -> dict[str, int] | None:
    try:
        names = os.listdir(folder)  # noqa: PTH208  # a Path for each would take longer than Python's finder
    except FileNotFoundError:
        return {}
    except OSError:
        return None
    found: dict[str, int] = {}
    for name in names:
        stem, dot, suffix = name.partition(".")
        found[stem] = found.get(stem, 0) | (_BARE if not dot else _SOURCE if suffix == "py" else _OTHER)
    return found


class _Loader(SourceFileLoader):
    """Python's loader, which does not ask when the source of unchecked bytecode was written."""

    def get_code(self, fullname: str) -> CodeType | None:
        try:
            with io.FileIO(cache_from_source(self.path)) as file:
                data = file.readall()
        except OSError:
            return super().get_code(fullname)
        if data.startswith(_UNCHECKED) and _imp.check_hash_based_pycs != "always":
            code = marshal.loads(memoryview(data)[_HEADER:])  # noqa: S302  # as Python's loader does
            if isinstance(code, CodeType) and code.co_filename == self.path:
                return code
        return super().get_code(fullname)
