# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The interpreter that measures: its build changes the CPU time by a quarter.

Our programs are measured as the image starts them: without ``.pth`` files, which in an environment for development load
finders of editable packages and the hooks of coverage. Those of the interpreter's own site-packages are left out by an
environment without packages, ``build/bench/bare-…``.
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
    """Return the beginning of a command line that starts a module as the image does, ``-m pkg.app`` for example.

    The interpreter is that of this environment, but the environment is that of :func:`make_environment`.
    """
    settings = [f"{name}={value}" for name, value in _SETTINGS.items()]
    command = ["env", "-u", "PYTHONDONTWRITEBYTECODE", *settings, str(_bare() / "bin" / "python"), "-P"]
    return shlex.join(command)


def make_environment() -> None:
    """Make the environment without packages."""
    subprocess.run([_interpreter(), "-P", "-m", "venv", "--clear", "--without-pip", _bare()], check=True)


def compile_as_image() -> None:
    """Make the environment, and import what our programs load, so that no start that is measured compiles it."""
    make_environment()
    subprocess.run([*shlex.split(as_image()), "-c", _PROGRAMS], cwd=measure.ROOT, check=True)


def _interpreter() -> Path:
    """Return the interpreter outside of environments."""
    return Path(sys.executable).resolve()


def _bare() -> Path:
    """Return the folder of the environment without packages; each interpreter has its own."""
    identity = hashlib.sha256(str(_interpreter()).encode()).hexdigest()
    return measure.ROOT / "build/bench" / f"bare-{identity[:8]}"


def describe() -> str:
    """Return one line: implementation, version, path, compiler, and the flags that it was built with.

    Flags of a distribution's own build steps, such as profile-guided optimization, are not recorded by Python.
    """
    options = shlex.split(str(sysconfig.get_config_var("CONFIG_ARGS") or ""))
    shown = [
        each for each in options if each.startswith(("--enable-", "--with-", "--disable-", "--without-"))
    ]
    flags = " ".join([str(sysconfig.get_config_var("OPT") or ""), *shown]).strip()
    name = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{name} at {sys.executable}, {platform.python_compiler()}: {flags}"
