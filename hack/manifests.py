# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Write ``config/crd`` from the models: ``python -m hack.manifests``.

With ``--record DIRECTORY`` the schemas of Kubernetes' own structs are recorded again first, from the documents that
an API server publishes below ``/openapi/v3`` (``api__v1_openapi.json`` and so on, as Kubernetes' own repository
keeps them in ``api/openapi-spec/v3``).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from controller_runtime.apis.machinery import kubernetes_schema, yaml
from controller_runtime.apis.machinery.object import Object
from controller_runtime.tools import crd
from controller_runtime.tools import files as generated

from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob

KINDS: Final[tuple[type[Object], ...]] = (ClusterTrainingRuntime, TrainingRuntime, TrainJob)
DIRECTORY: Final = Path(__file__).resolve().parents[1] / "config" / "crd"

_DOCUMENTS: Final = ("api__v1", "apis__apps__v1", "apis__batch__v1", "apis__autoscaling__v2")
_ROOTS: Final = (
    "apps.v1.DaemonSetSpec",
    "apps.v1.DaemonSetStatus",
    "apps.v1.DeploymentSpec",
    "apps.v1.DeploymentStatus",
    "apps.v1.ReplicaSetSpec",
    "apps.v1.ReplicaSetStatus",
    "apps.v1.StatefulSetSpec",
    "apps.v1.StatefulSetStatus",
    "autoscaling.v2.MetricSpec",
    "batch.v1.JobTemplateSpec",
    "core.v1.PersistentVolumeClaim",
    "core.v1.PodTemplateSpec",
    "meta.v1.Condition",
)
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
    """Write the files below ``directory`` and return those that changed; foreign files there are left alone."""
    return generated.write(directory, render())


def record(directory: Path, version: str) -> None:
    """Record the schemas of Kubernetes' own structs from the documents in ``directory``."""
    documents = [json.loads((directory / f"{name}_openapi.json").read_text()) for name in _DOCUMENTS]
    kubernetes_schema.FILE.write_text(kubernetes_schema.record(documents, _ROOTS, version))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="manifests", description="Write config/crd from the models.")
    parser.add_argument("--output", type=Path, default=DIRECTORY, metavar="DIRECTORY")
    parser.add_argument("--record", type=Path, metavar="DIRECTORY", help="OpenAPI documents to record first")
    parser.add_argument("--kubernetes-version", metavar="VERSION", help="the version that --record is from")
    arguments = parser.parse_args(argv)
    if arguments.record is not None:
        if not arguments.kubernetes_version:
            parser.error("--record needs --kubernetes-version")
        try:
            record(arguments.record, arguments.kubernetes_version)
        except (OSError, KeyError, ValueError) as error:
            sys.stderr.write(f"{arguments.record}: cannot be recorded: {error}\n")
            return 2
        sys.stdout.write(
            f"recorded the schemas of Kubernetes {arguments.kubernetes_version}; run again to use them\n"
        )
        return 0
    for path in write(arguments.output):
        sys.stdout.write(f"wrote {path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
