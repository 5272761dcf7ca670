# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The interpreter of the measured programs: its build can change the CPU time by a quarter.

Our programs are measured as the image starts them, without ``.pth`` files: in a development environment, these load
the finders of editable packages and the hooks of coverage. To avoid those of the interpreter's own site-packages, too,
the programs run in an environment without packages, ``build/bench/bare-…``.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

from harness import measure

_BYTECODE: Final = measure.ROOT / "build/bench/bytecode"
_LIBRARY: Final = measure.ROOT / "controller-runtime"
_SETTINGS: Final = {
    "PYTHONPATH": os.pathsep.join([str(measure.ROOT), str(_LIBRARY), sysconfig.get_path("purelib")]),
    "PYTHONPYCACHEPREFIX": str(_BYTECODE),
}
_PROGRAMS: Final = "import pkg.app.program, pkg.app.podgrouper.program, pkg.podgrouper, pkg.util.cert, uvloop"


def as_image() -> str:
    """Return a command line that starts a module as the image does, if for example ``-m pkg.app`` is added.

    It uses the interpreter of this environment in the environment of :func:`make_environment`.
    """
    settings = [f"{name}={value}" for name, value in _SETTINGS.items()]
    command = ["env", "-u", "PYTHONDONTWRITEBYTECODE", *settings, str(_bare() / "bin" / "python"), "-P"]
    return shlex.join(command)


def make_environment() -> None:
    """Create the environment without packages, or create it again."""
    subprocess.run([_interpreter(), "-P", "-m", "venv", "--clear", "--without-pip", _bare()], check=True)


def compile_as_image() -> None:
    """Create the environment, and import our programs' modules, so that no measured start has to compile them."""
    make_environment()
    subprocess.run([*shlex.split(as_image()), "-c", _PROGRAMS], cwd=measure.ROOT, check=True)


def _interpreter() -> Path:
    """Return the interpreter that this environment uses."""
    return Path(sys.executable).resolve()


def _bare() -> Path:
    """Return the folder of the environment without packages; each interpreter has its own."""
    identity = hashlib.sha256(str(_interpreter()).encode()).hexdigest()
    return measure.ROOT / "build/bench" / f"bare-{identity[:8]}"


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
