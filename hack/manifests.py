# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Write ``config/crd`` from the models: ``python -m hack.manifests``.

The library has the generator; this module adds the kustomization and the JSON files.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from controller_runtime.machinery import Object, yaml
from controller_runtime.tools import crd
from controller_runtime.tools import files as generated

from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob

KINDS: Final[tuple[type[Object], ...]] = (ClusterTrainingRuntime, TrainingRuntime, TrainJob)
DIRECTORY: Final = Path(__file__).resolve().parents[1] / "config" / "crd"

_LICENCE: Final = (
    "# SPDX-FileCopyrightText: The trainer-controller-manager authors\n"
    "# SPDX-License-Identifier: Apache-2.0\n"
)


def render() -> dict[str, str]:
    """Return every file of ``config/crd`` by its path there."""
    files: dict[str, str] = {}
    names = []
    for name, definition in crd.definitions(KINDS).items():
        names.append(f"bases/{name}")
        files[f"bases/{name}"] = f"{_LICENCE}---\n{yaml.dump(definition, sort_keys=True)}"
        text = json.dumps(definition, sort_keys=True, separators=(",", ":")) + "\n"
        files[f"json/{name.removesuffix('.yaml')}.json"] = text
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": sorted(names),
    }
    files["kustomization.yaml"] = _LICENCE + yaml.dump(kustomization, sort_keys=True)
    return files


def write(directory: Path) -> list[Path]:
    """Write the files below ``directory`` and return those that changed; other files there are not touched."""
    return generated.write(directory, render())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="manifests", description="Write config/crd from the models.")
    parser.add_argument("--output", type=Path, default=DIRECTORY, metavar="DIRECTORY")
    arguments = parser.parse_args(argv)
    for path in write(arguments.output):
        sys.stdout.write(f"wrote {path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
