# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Small helpers of many tests: pods, names of objects, counted comparisons, places in JSON, the output of a program."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import anyio

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import Object

WriteKubeconfig = Callable[..., Path]
"""The fixture that writes a kubeconfig for a user."""


def make_pod(name: str, *, namespace: str = "ns", **metadata: Any) -> Pod:
    return Pod.from_dict({"metadata": {"name": name, "namespace": namespace, **metadata}})


async def settle() -> None:
    """Let all ready tasks run while the virtual clock advances by a microsecond."""
    await anyio.sleep(1e-6)


def names(objects: Iterable[Object]) -> list[str]:
    return [obj.name for obj in objects]


class CountedName(str):
    """A string; the class counts how often its instances are compared with another value."""

    __slots__ = ()
    __hash__ = str.__hash__
    comparisons: ClassVar[int] = 0

    def __eq__(self, other: object) -> bool:
        CountedName.comparisons += 1
        return str.__eq__(self, other)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of ``value`` itself and of every value in it; a value comes before those inside it."""
    below: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        below = list(value.items())
    elif isinstance(value, list):
        below = list(enumerate(value))
    return [path, *(found for key, each in below for found in places(each, (*path, key)))]


def output_of(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout: float, code: int = 0
) -> str:
    """Run ``command``, which must exit with ``code``; return its standard output, or its errors if it fails."""
    done = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    return done.stdout if code == 0 else done.stderr
