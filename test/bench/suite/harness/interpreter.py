# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The interpreter that measures: its build changes the CPU time by a quarter."""

from __future__ import annotations

import platform
import shlex
import sys
import sysconfig


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
