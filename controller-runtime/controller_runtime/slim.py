# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Make the packages of an image smaller: without kubernetes-asyncio's models, and without symbols for debuggers.

``python -m controller_runtime.slim [FOLDER]`` is a step of building an image, after the packages are installed.
FOLDER contains the packages, as ``pip install --target FOLDER`` put them; the default is the running interpreter's.
The models are 48 MB of generated code, all of the distribution but its ``config`` package. The library does not use
them. A program that imports ``kubernetes_asyncio`` itself needs them: do not run the step there. Compiled libraries
are stripped in a FOLDER alone; some wheels ship ten times as many symbols as code.
"""

from __future__ import annotations

import importlib.util
import shutil
import struct
import sys
from pathlib import Path
from typing import Final

PACKAGE: Final = "kubernetes_asyncio"
KEPT: Final = "config"
"""The package that :mod:`controller_runtime.rest` imports: kubeconfigs, exec plugins, OIDC and in-cluster settings."""

_IDENTITY: Final = b"\x7fELF\x02\x01"  # 64 bits, little-endian: the machines that images are built for
_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT: Final = struct.Struct("<IIQQQQQQ")


class SlimError(Exception):
    """Nothing to remove was found; the message names the folder."""


def slim(folder: Path | None = None) -> int:
    """Remove the packages in kubernetes-asyncio that the library does not use; return how many bytes that freed.

    Does nothing, and returns 0, the second time.

    Raises:
        SlimError: the distribution is not in ``folder``, or not as the library expects it.
    """
    installed = _installed() if folder is None else folder / PACKAGE
    if installed is None or not (installed / KEPT / "__init__.py").is_file():
        raise SlimError(f"no {PACKAGE} with a package {KEPT} in {folder or 'the path of the interpreter'}")
    freed = 0
    for each in sorted(installed.iterdir()):
        if each.is_dir() and not each.is_symlink() and each.name != KEPT:
            freed += sum(file.lstat().st_size for file in each.rglob("*") if not file.is_dir())
            shutil.rmtree(each)
    return freed


def stripped(content: bytes) -> bytes:
    """Return a library without symbols and debug information; other content is returned as it is.

    The loader reads segments alone. All bytes outside them, among which are the section headers, are removed from the
    end of the file and set to zero before it.
    """
    if not content.startswith(_IDENTITY) or len(content) < _HEADER.size:
        return content
    header = list(_HEADER.unpack_from(content))
    table, size, count = header[5], header[9], header[10]
    needed = [(0, _HEADER.size), (table, table + size * count)]
    for number in range(count):
        _, _, offset, _, _, length, _, _ = _SEGMENT.unpack_from(content, table + size * number)
        needed.append((offset, offset + length))
    kept = bytearray(max(end for _, end in needed))
    for start, end in needed:
        kept[start:end] = content[start:end]
    header[6] = header[12] = header[13] = 0  # no section headers; the size of one stays
    _HEADER.pack_into(kept, 0, *header)
    return bytes(kept)


def strip(folder: Path) -> int:
    """Strip the libraries below ``folder``; return how many bytes that freed."""
    freed = 0
    for path in sorted(folder.rglob("*.so*")):
        if not path.is_file() or path.is_symlink():
            continue
        content = path.read_bytes()
        shorter = stripped(content)
        if len(shorter) < len(content):
            partial = path.with_name(f".{path.name}.partial")  # a process may have loaded the file
            partial.write_bytes(shorter)
            partial.chmod(path.stat().st_mode)
            partial.replace(path)
            freed += len(content) - len(shorter)
    return freed


def _installed() -> Path | None:
    spec = importlib.util.find_spec(PACKAGE)
    folders = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(folders))) if folders else None


def main(arguments: list[str]) -> int:
    """Run the command; return its exit code."""
    if len(arguments) > 1 or any(each.startswith("-") for each in arguments):
        sys.stderr.write("usage: python -m controller_runtime.slim [FOLDER]\n")
        return 2
    try:
        freed = slim(*map(Path, arguments))
        symbols = sum(map(strip, map(Path, arguments)))
    except (SlimError, OSError) as error:
        sys.stderr.write(f"slim: {error}\n")
        return 1
    sys.stdout.write(f"removed {freed / 1e6:.1f} MB of {PACKAGE} and {symbols / 1e6:.1f} MB of symbols\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
