# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""CEL for the rules of CRDs, by the Rust implementation ``common-expression-language``."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from controller_runtime.apis.machinery.base import JSON

if TYPE_CHECKING:
    import cel

_NO_OVERLOAD = (
    "'no such overload': call arguments did not match a supported operator, function or macro signature"
)


class Evaluator:
    """Compiles each rule once."""

    def __init__(self) -> None:
        self._compile = _library().compile
        self._programs: dict[str, cel.Program] = {}

    def __call__(self, rule: str, value: JSON) -> bool | str:
        """Return True if ``rule`` holds for ``value``, or the server's message if it cannot be evaluated."""
        program = self._programs.get(rule)
        if program is None:
            program = self._programs[rule] = self._compile(rule)
        try:
            return bool(program.execute({"self": value}))
        except TypeError:
            return _NO_OVERLOAD
        except (ValueError, RuntimeError) as error:
            return str(error)


def _library() -> ModuleType:
    """Import the library without its command line, whose import takes twenty times as long."""
    command_line = "cel.cli"
    if "cel" not in sys.modules and command_line not in sys.modules:
        sys.modules[command_line] = ModuleType(command_line)
        try:
            import cel
        finally:
            del sys.modules[command_line]
    import cel

    return cel
