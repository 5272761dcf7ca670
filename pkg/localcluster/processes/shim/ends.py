# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The end of a container on the disk, for a kubelet that starts after the one that could not report it."""

import json
import os
from typing import Any, Final

_FILE: Final = "end.json"


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
            found: dict[str, Any] = json.load(file)
    except (OSError, ValueError):
        return None
    return found
