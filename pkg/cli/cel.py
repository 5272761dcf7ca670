# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""CEL, as CRDs' rules use it, by a kept implementation in Rust: ``common-expression-language``."""

from __future__ import annotations

from typing import Any

_NO_OVERLOAD = (
    "'no such overload': call arguments did not match a supported operator, function or macro signature"
)


class Evaluator:
    """Compiles each rule once."""

    def __init__(self) -> None:
        import cel  # here: the library takes a while, and only rules need it

        self._compile = cel.compile
        self._programs: dict[str, cel.Program] = {}

    def __call__(self, rule: str, value: Any) -> bool | str:
        """Return whether ``rule`` holds for ``value``, or the server's words for a failure to tell."""
        program = self._programs.get(rule)
        if program is None:
            program = self._programs[rule] = self._compile(rule)
        try:
            return bool(program.execute({"self": value}))
        except TypeError:
            return _NO_OVERLOAD
        except (ValueError, RuntimeError) as error:
            return str(error)
