# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Compile the modules of the standard library that programs load, for an image whose interpreter has none compiled.

``python -m controller_runtime.precompile FOLDER MODULE...`` is a step of building an image. The official images of
Python delete the bytecode of the standard library, and a user without the right to write cannot keep what an import
compiles: every start would compile 200 modules again. FOLDER receives the bytecode under the paths of the root, to be
copied to ``/`` of an image with the same interpreter.
"""

from __future__ import annotations

import importlib
import importlib.util
import py_compile
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

_OTHERS = ("site-packages", "dist-packages")


def precompile(folder: Path, modules: Iterable[str]) -> int:
    """Import ``modules`` and compile all loaded modules of the standard library into ``folder``; return their number.

    Raises:
        ImportError: a module cannot be imported.
        OSError: a file cannot be written.
    """
    for name in modules:
        importlib.import_module(name)
    sources = set(_sources())
    for source in sources:
        cached = Path(importlib.util.cache_from_source(str(source)))
        py_compile.compile(
            str(source),
            cfile=str(folder / cached.relative_to(cached.anchor)),
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
    return len(sources)


def _sources() -> Iterator[Path]:
    """Yield the source files of the loaded modules of the standard library."""
    home = Path(sysconfig.get_path("stdlib"))
    for module in list(sys.modules.values()):
        spec = getattr(module, "__spec__", None)
        source = Path(getattr(spec, "origin", None) or "")
        if source.suffix == ".py" and source.is_relative_to(home) and not set(_OTHERS) & set(source.parts):
            yield source


def main(arguments: list[str]) -> int:
    """Run the command; return its exit code."""
    if len(arguments) < 2 or any(each.startswith("-") for each in arguments):
        sys.stderr.write("usage: python -m controller_runtime.precompile FOLDER MODULE...\n")
        return 2
    folder, *modules = arguments
    try:
        count = precompile(Path(folder), modules)
    except (ImportError, OSError, py_compile.PyCompileError) as error:
        sys.stderr.write(f"precompile: {error}\n")
        return 1
    sys.stdout.write(f"compiled {count} modules of the standard library\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
