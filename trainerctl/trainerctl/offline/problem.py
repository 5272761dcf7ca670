# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A problem of an object, with its path. Both have the form that the API server uses."""

from __future__ import annotations

import re

from controller_runtime.machinery.structural import Path as Path
from controller_runtime.machinery.structural import Problem as Problem
from controller_runtime.machinery.structural import kind_of as kind_of
from controller_runtime.machinery.structural import render as render


def parse(text: str) -> Path | None:
    """Convert text that :func:`render` has made back to a path. Convert ``<nil>``, which means no path, to None."""
    steps = re.findall(r"\[(\d+)\]|([^.\[\]]+)", text)
    return None if text == "<nil>" else tuple(int(index) if index else name for index, name in steps)
