# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The parser of command lines, and the types of flags' values."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import NoReturn

from controller_runtime.apis.machinery import names

from pkg.offline.text import one_line


class Parser(argparse.ArgumentParser):
    """argparse's parser; what it quotes from the command line cannot control the terminal."""

    def error(self, message: str) -> NoReturn:
        """Print usage and message, and exit with code 2."""
        super().error(one_line(message))


def whole(least: int, most: int) -> Callable[[str], int]:
    """Return the type of a whole number between ``least`` and ``most``."""

    def parsed(text: str) -> int:
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else least - 1
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"{text} is not a whole number between {least} and {most}")
        return number

    return parsed


def namespace(text: str) -> str:
    """Return the valid name of a namespace."""
    if errors := names.is_dns1123_label(text):
        raise argparse.ArgumentTypeError(f"{text} is not a valid namespace: {'; '.join(errors)}")
    return text


def seconds(text: str) -> float:
    """Return a positive, finite number of seconds."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not (number > 0 and math.isfinite(number)):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number of seconds")
    return number
