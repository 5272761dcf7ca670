# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Check the file that another project releases against its pinned digest: ``python -m hack.third_party NAME FILE``.

kustomize and kubectl check no digest of a file that they download.

The digest is computed from the objects; their order, their formatting, and the registries and tags of their images make
no difference. A test computes it again from the Go module of the same release, whose content go.sum pins.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from controller_runtime.machinery import yaml

_IMAGE: Final = re.compile(r"(?:[\w.:-]+/)+(?P<name>[\w-]+):[\w.-]+")


class Pin(NamedTuple):
    """A release of another project."""

    version: str
    digest: str


PINS: Final[Mapping[str, Pin]] = {
    "jobset": Pin("v0.10.1", "sha256:f7e33b421893de5660ac12a95c22b745f9272826f3742d1bb973ed246ee2523d"),
    "leaderworkerset": Pin(
        "v0.7.0", "sha256:0d968852f80b7a45b15c23a93fa8966a9c83304f6608a0585881c94495d11029"
    ),
}
"""The releases of ``config/third-party``."""


def digest(objects: Iterable[Mapping[str, Any]]) -> str:
    """Return the digest of objects."""
    lines = sorted(json.dumps(_untagged(each), sort_keys=True) for each in objects if each)
    return f"sha256:{hashlib.sha256(chr(10).join(lines).encode()).hexdigest()}"


def _untagged(data: Any) -> Any:
    """Return an object without the registries and tags of its images, because the overlays choose both."""
    if isinstance(data, Mapping):
        return {
            key: _IMAGE.sub(r"\g<name>", value)
            if key == "image" and isinstance(value, str)
            else _untagged(value)
            for key, value in data.items()
        }
    return [_untagged(each) for each in data] if isinstance(data, list) else data


def main(arguments: list[str]) -> int:
    """Print whether a file is the pinned release; return 1 if it is not, or if it cannot be downloaded."""
    parser = argparse.ArgumentParser(prog="python -m hack.third_party")
    parser.add_argument("name", choices=PINS)
    parser.add_argument("file", type=Path)
    parser.add_argument("--url", help="download the file from here first")
    given = parser.parse_args(arguments)
    pin = PINS[given.name]
    if given.url is not None:
        try:
            urllib.request.urlretrieve(given.url, given.file)  # noqa: S310 -- the digest is checked
        except OSError as error:
            sys.stderr.write(f"{given.url} cannot be downloaded: {error}\n")
            return 1
    found = digest(value for _, value in yaml.load_all(given.file.read_bytes(), strict=False))
    if found != pin.digest:
        message = f"{given.file} is not {given.name} {pin.version}: its digest is {found}, not {pin.digest}\n"
        sys.stderr.write(message)
        return 1
    sys.stdout.write(f"{given.file} is {given.name} {pin.version}: {found}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
