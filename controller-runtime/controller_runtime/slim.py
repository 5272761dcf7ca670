# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Remove the models from an installed kubernetes-asyncio, all but its ``config`` package: 48 MB of generated code.

``python -m controller_runtime.slim [FOLDER]`` is a step of building an image, after the packages are installed.
FOLDER contains the packages, as ``pip install --target FOLDER`` put them; the default is the running interpreter's.
The library does not use the removed modules. A program that imports ``kubernetes_asyncio`` itself needs them:
do not run the step there.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from typing import Final

PACKAGE: Final = "kubernetes_asyncio"
KEPT: Final = "config"
"""The package that :mod:`controller_runtime.rest` imports: kubeconfigs, exec plugins, OIDC and in-cluster settings."""


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
    except (SlimError, OSError) as error:
        sys.stderr.write(f"slim: {error}\n")
        return 1
    sys.stdout.write(f"removed {freed / 1e6:.1f} MB of {PACKAGE}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
