# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The interpreter of the measured programs: its build can change the CPU time by a quarter.

Our programs are measured as the image starts them, without ``.pth`` files: in a development environment, these load
the finders of editable packages and the hooks of coverage. To avoid those of the interpreter's own site-packages, too,
the programs run in an environment without packages, ``build/bench/bare-…``. They find only the packages of the image,
in ``build/bench/packages-…``: structlog, for example, imports rich, pygments, attrs and colorama if they are installed.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[4]
_BYTECODE: Final = ROOT / "build/bench/bytecode"
_LOCK: Final = ROOT / "requirements/image.lock"
_LIBRARY: Final = ROOT / "controller-runtime"
_OURS: Final = ("controller-runtime", "trainer-controller-manager")
"""The distributions of our programs. Only their metadata is needed, for the version."""
_PROGRAMS: Final = "import pkg.app.program, pkg.app.podgrouper.program, pkg.podgrouper, pkg.util.cert, uvloop"


def as_image() -> str:
    """Return a command line that starts a module as the image does, if for example ``-m pkg.app`` is added.

    It uses the interpreter of this environment in the environment of :func:`make_environment`.
    """
    path = os.pathsep.join(map(str, (ROOT, _LIBRARY, _own_folder("packages"))))
    settings = [f"PYTHONPATH={path}", f"PYTHONPYCACHEPREFIX={_BYTECODE}"]
    python = _own_folder("bare") / "bin" / "python"
    return shlex.join(["env", "-u", "PYTHONDONTWRITEBYTECODE", *settings, str(python), "-P"])


def make_environment() -> None:
    """Create the environment without packages and the folder with the image's packages, or create them again."""
    bare = _own_folder("bare")
    subprocess.run([_interpreter(), "-P", "-m", "venv", "--clear", "--without-pip", bare], check=True)
    link_packages(_LOCK, sysconfig.get_path("purelib"), _own_folder("packages"))


def compile_as_image() -> None:
    """Create the environment, and import our programs' modules, so that no measured start has to compile them."""
    make_environment()
    compile_for(as_image())


def compile_for(command: str) -> None:
    """Import our programs' modules with a command line such as that of :func:`as_image`."""
    subprocess.run([*shlex.split(command), "-c", _PROGRAMS], cwd=ROOT, check=True)


def link_packages(lock: Path, installed: str, folder: Path) -> None:
    """Make ``folder`` contain links to the packages in ``installed`` that the lock of the image names.

    Raises:
        RuntimeError: a package of the image is not installed, or in another version.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    found = {_normal(each.name): each for each in importlib.metadata.distributions(path=[installed])}
    pins = re.findall(r"^([\w.-]+)==([\w.]+)(.*)", lock.read_text(), re.MULTILINE)
    for name, version, marker in pins:
        distribution = found.get(_normal(name))
        if distribution is None and ";" in marker:
            continue  # it is for another platform
        if distribution is None or distribution.version != version:
            raise RuntimeError(
                f"{installed} does not have {name} {version}, which the image has: run make dev"
            )
        for each in _top_level(distribution):
            (folder / each).symlink_to(Path(installed) / each)
    for name in _OURS:
        for each in _top_level(found[name]):
            if each.endswith(".dist-info"):
                (folder / each).symlink_to(Path(installed) / each)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _top_level(distribution: importlib.metadata.Distribution) -> Iterator[str]:
    """Yield the names of the files and folders that a distribution has in site-packages."""
    names = {each.parts[0] for each in distribution.files or ()}
    return iter(sorted(names - {"..", "__pycache__"}))


def _interpreter() -> Path:
    """Return the interpreter that this environment uses."""
    return Path(sys.executable).resolve()


def _own_folder(name: str) -> Path:
    """Return a folder that each interpreter has for itself."""
    identity = hashlib.sha256(str(_interpreter()).encode()).hexdigest()
    return ROOT / "build/bench" / f"{name}-{identity[:8]}"


def describe() -> str:
    """Return the interpreter's implementation, version, path, compiler and build flags in one line.

    Flags of a distribution's own build steps, such as profile-guided optimization, are not recorded by Python.
    """
    options = shlex.split(str(sysconfig.get_config_var("CONFIG_ARGS") or ""))
    shown = [
        each for each in options if each.startswith(("--enable-", "--with-", "--disable-", "--without-"))
    ]
    flags = " ".join([str(sysconfig.get_config_var("OPT") or ""), *shown]).strip()
    name = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{name} at {sys.executable}, {platform.python_compiler()}: {flags}"
