# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a program under a wall clock that is off by as many seconds as a file says, from one look to the next.

Arguments: the file, the program, and the program's own. The monotonic clock goes on as ever.
"""

import datetime
import runpy
import sys
import time
from pathlib import Path
from typing import Any

_real_time = time.time


def shift(offset: Path) -> None:
    """Shift Python's wall clocks for all later imports."""

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
    datetime.datetime = Shifted  # type: ignore[misc]  # what the test is about


if __name__ == "__main__":
    _, offset, program, *arguments = sys.argv
    shift(Path(offset))
    sys.argv = [program, *arguments]
    runpy.run_path(program, run_name="__main__")
