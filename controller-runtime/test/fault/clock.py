# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Run a Python program whose wall clock is off by the number of seconds in a file, which may change at any time.

Arguments: the file, the program, and the arguments of the program. The monotonic clock is not affected.
"""

import datetime
import runpy
import sys
import time
from pathlib import Path
from typing import Any

_real_time = time.time


def shift(offset: Path) -> None:
    """Replace ``time.time`` and ``datetime.datetime`` for all modules that are imported later."""

    def shifted() -> float:
        return _real_time() + float(offset.read_text())

    class _Kind(type(datetime.datetime)):  # type: ignore[misc]  # a class's class, known at run time only
        def __instancecheck__(cls, instance: Any) -> bool:
            return issubclass(type(instance), cls.__mro__[1])

    class Shifted(datetime.datetime, metaclass=_Kind):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return cls.fromtimestamp(shifted(), tz)

    time.time = shifted
    datetime.datetime = Shifted  # type: ignore[misc]  # a class is replaced on purpose


if __name__ == "__main__":
    _, offset, program, *arguments = sys.argv
    shift(Path(offset))
    sys.argv = [program, *arguments]
    runpy.run_path(program, run_name="__main__")
