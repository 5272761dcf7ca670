# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Helm, and charts without the charts that they depend on."""

from __future__ import annotations

import functools
import os
import shutil
from pathlib import Path
from typing import Any, Final

import anyio
import yaml
from ctrl_testkit.small import output_of

from testkit import programs

NAME: Final = "kubeflow-trainer"
NAMESPACE: Final = "kubeflow-system"


@functools.cache
def helm() -> Path:
    return anyio.run(programs.located, programs.HELM)


def copied(source: Path, folder: Path, *dependencies: str) -> Path:
    """Copy a chart into a folder, without the charts that it depends on, which must be these."""
    helm()  # found here, because a test may call :func:`template` in its event loop
    target = Path(shutil.copytree(source, folder / NAME))
    described = yaml.safe_load((target / "Chart.yaml").read_text())
    assert [each["name"] for each in described.pop("dependencies")] == [*dependencies]
    (target / "Chart.yaml").write_text(yaml.safe_dump(described))
    return target


def template(chart: Path, *flags: str, code: int = 0, **environ: str) -> str:
    """Return what ``helm template`` prints for a chart, or its errors if it must exit with another ``code``."""
    command = [str(helm()), "template", NAME, str(chart), f"--namespace={NAMESPACE}", *flags]
    env = {"HOME": "/nonexistent", "PATH": os.environ["PATH"], **environ}
    return output_of(command, cwd=chart.parent, env=env, timeout=120, code=code)


def rendered(chart: Path, *flags: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the objects of a chart by kind and name."""
    found = [each for each in yaml.load_all(template(chart, *flags), yaml.CSafeLoader) if each]
    keyed = {(each["kind"], each["metadata"]["name"]): each for each in found}
    assert len(keyed) == len(found)
    return keyed
