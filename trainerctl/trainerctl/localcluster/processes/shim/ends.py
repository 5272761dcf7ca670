# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The end of a container on the disk, for a kubelet that starts after the one that could not report it."""

import json
import os
from typing import Any, Final

_FILE: Final = "end.json"
_LONGEST: Final = 4096


def write(folder: str, **fields: object) -> None:
    """Write the end of a start into the folder of its log, or nothing if the disk is full."""
    path = os.path.join(folder, _FILE)
    try:
        with open(f"{path}.new", "w") as file:
            json.dump(fields, file)
        os.replace(f"{path}.new", path)
    except OSError:
        return


def read(folder: str) -> dict[str, Any] | None:
    """Return the end of a start, or None if the container did not end by itself or its end is unreadable."""
    try:
        with open(os.path.join(folder, _FILE)) as file:
            text = file.read(_LONGEST + 1)
        found: Any = json.loads(text) if len(text) <= _LONGEST else None
    except (OSError, ValueError, RecursionError):  # a container without mounts of its own can write the file
        return None
    return found if isinstance(found, dict) else None
