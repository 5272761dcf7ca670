# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""CEL for the rules of CRDs, by the Rust implementation ``common-expression-language``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller_runtime.machinery import JSON

if TYPE_CHECKING:
    import cel

_NO_OVERLOAD = (
    "'no such overload': call arguments did not match a supported operator, function or macro signature"
)


class Evaluator:
    """Compiles each rule once."""

    def __init__(self) -> None:
        import cel  # loads a command line, which takes longer than a check

        self._compile = cel.compile
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
