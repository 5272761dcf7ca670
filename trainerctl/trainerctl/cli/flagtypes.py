# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The argparse types of flags and arguments: each returns a valid value or raises ArgumentTypeError."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

from controller_runtime.machinery import names

from trainerctl.localcluster import names as names_of_clusters


def integer(least: int, most: int) -> Callable[[str], int]:
    """Return an argparse type that accepts integers from ``least`` to ``most``."""

    def parsed(text: str) -> int:
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else least - 1
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"{text} is not an integer between {least} and {most}")
        return number

    return parsed


def namespace(text: str) -> str:
    """Return ``text`` if it is a valid name of a namespace."""
    if errors := names.is_dns1123_label(text):
        raise argparse.ArgumentTypeError(f"{text} is not a valid namespace: {'; '.join(errors)}")
    return text


def cluster(text: str) -> str:
    """Return ``text`` if it is a valid name of a local cluster."""
    try:
        names_of_clusters.check(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
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


def name(text: str) -> str:
    """Return the name of a TrainJob if it is valid; ``text`` may also be ``trainjob/NAME``, also with the group."""
    kind, _, rest = text.rpartition("/")
    if kind.removesuffix(".trainer.kubeflow.org") not in ("", "trainjob", "trainjobs"):
        raise argparse.ArgumentTypeError(f"{text} is not a TrainJob")
    if errors := names.is_dns1123_subdomain(rest):
        raise argparse.ArgumentTypeError(f"{text} is not a valid name: {'; '.join(errors)}")
    return rest


def feature_gates(text: str) -> dict[str, bool]:
    """Return the manager's feature gates of comma-separated pairs."""
    from pkg.app import flags  # few commands use this import

    try:
        return flags.feature_gates(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def image(text: str) -> tuple[str, str]:
    """Return an image and the folder of its programs. The folder must exist and contain a Python interpreter."""
    from trainerctl.localcluster.processes import images  # few commands use this import

    try:
        name, folder = images.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return name, str(folder)


def picture(text: str) -> str:
    """Return the path of a picture whose suffix names a format that can be written."""
    if not text.lower().endswith((".svg", ".png")):
        raise argparse.ArgumentTypeError(f"{text} does not end with .svg or .png")
    return text
