# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Make ``config/crd`` from the models.

The library has the generator; this module adds the kustomization and the JSON files.
"""

from __future__ import annotations

import json
from typing import Final

from controller_runtime.machinery import Object, yaml
from controller_runtime.tools import crd

from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob

KINDS: Final[tuple[type[Object], ...]] = (ClusterTrainingRuntime, TrainingRuntime, TrainJob)

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
