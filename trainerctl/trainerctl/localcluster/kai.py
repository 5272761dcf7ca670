# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""KAI-Scheduler in the cluster: the user's scheduler and binder, and the objects that they need.

The programs and the CRDs must be of one release. If the user gives no CRDs, CRDs generated from our models are
installed. These are the CRDs of v0.17, so a scheduler of v0.13 needs the CRDs of its own release.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from controller_runtime.envtest import HOST, Component, EnvtestError, Probe, open_crd
from controller_runtime.machinery import GVK, JSON, yaml
from controller_runtime.machinery.crd import custom_resource_definition
from pkg import shipped
from pkg.apis.kai.v2 import Queue
from pkg.apis.kai.v2alpha2 import PodGroup
from pkg.constants import kai

from trainerctl.localcluster.access import role_binding

Manifest = dict[str, JSON]

SCHEDULER: Final = "kai-scheduler"
BINDER: Final = "kai-binder"
USER: Final = "kai-scheduler"
PARENT_QUEUE: Final = "default-parent-queue"
_NAMESPACES: Final = ("kai-scheduler", "kai-resource-reservation", "kai-scale-adjust")
_PRIORITIES: Final = {
    kai.TRAIN_PRIORITY_CLASS: 50,
    "build-preemptible": 75,
    kai.BUILD_PRIORITY_CLASS: 100,
    kai.INFERENCE_PRIORITY_CLASS: 125,
}
_UNLIMITED: Final = {"quota": -1, "limit": -1, "overQuotaWeight": 1}


@dataclass(frozen=True)
class Programs:
    """The user's programs, and the folder with the CRDs of their release."""

    scheduler: Path
    binder: Path
    crds: Path | None = None

    def check(self) -> None:
        """Raise EnvtestError if a program cannot be run, a CRD cannot be read, or the CRD of PodGroups is missing."""
        for path in (self.scheduler, self.binder):
            if not (path.is_file() and os.access(path, os.X_OK)):
                raise EnvtestError(f"{path} is not a program that can be run")
        if "podgroups.scheduling.run.ai" not in {crd["metadata"]["name"] for crd in crds(self)}:
            raise EnvtestError(f"{self.crds} has no CRD of podgroups.scheduling.run.ai")


def crds(programs: Programs) -> list[Manifest]:
    """Return the CRDs in the user's folder or, if no folder is given, those of our models.

    Raises:
        EnvtestError: a file in the folder cannot be read.
    """
    if programs.crds is None:
        status: JSON = {"status": {}}
        return [
            custom_resource_definition(PodGroup),
            custom_resource_definition(Queue),
            open_crd(GVK("scheduling.run.ai", "v1alpha2", "BindRequest"), subresources=status),
            open_crd(
                GVK("kai.scheduler", "v1alpha1", "Topology"),
                "topologies",
                namespaced=False,
                subresources=status,
            ),
        ]
    found: list[Manifest] = []
    for path in sorted(programs.crds.glob("*.yaml")):
        try:
            documents = [value for _, value in yaml.load_all(path.read_bytes(), strict=False)]
        except (OSError, yaml.YAMLError) as error:
            raise EnvtestError(f"{path} cannot be read: {error}") from error
        found += [
            each
            for each in documents
            if isinstance(each, dict) and each.get("kind") == "CustomResourceDefinition"
        ]
    return found


def objects(account: dict[str, str]) -> list[Manifest]:
    """Return the namespaces, permissions and priority classes; ``account`` runs the pod grouper.

    The programs get every permission, because the user gives only the programs, without their roles.
    """
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}
    programs = role_binding("cluster-admin", user)
    programs["metadata"]["name"] = USER
    (role,) = (each for each in shipped.manifests("podgrouper") if each["kind"] == "ClusterRole")
    return [
        *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in _NAMESPACES),
        programs,
        role,
        role_binding(role["metadata"]["name"], account),
        *(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
            }
            for name, value in _PRIORITIES.items()
        ),
    ]


def queues() -> list[Manifest]:
    """Return the default queue and its parent, without limits."""
    resources = dict.fromkeys(("cpu", "gpu", "memory"), _UNLIMITED)
    return [
        {
            "apiVersion": "scheduling.run.ai/v2",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": {**parent, "resources": resources},
        }
        for name, parent in (
            (PARENT_QUEUE, {}),
            (kai.DEFAULT_QUEUE_NAME, {"parentQueue": PARENT_QUEUE}),
        )
    ]


def components(programs: Programs, kubeconfig: Path, metrics: int, binder_metrics: int) -> list[Component]:
    """Return the scheduler and the binder; ``metrics`` and ``binder_metrics`` are the ports of their metrics."""
    scheduler = {
        "listen-address": f"{HOST}:{metrics}",
        # The plugins' server listens on all interfaces and gives everyone the cluster's state. On an invalid port the
        # scheduler runs without it.
        "plugin-server-port": -1,
        "schedule-period": "1s",
        "leader-elect": "false",
    }
    # The binder registers no health check, so its health endpoint answers 404.
    binder = {"health-probe-bind-address": "0", "metrics-bind-address": f"{HOST}:{binder_metrics}"}
    env = {"KUBECONFIG": str(kubeconfig)}
    return [
        Component(
            SCHEDULER,
            [str(programs.scheduler), *_flags(scheduler)],
            Probe(f"http://{HOST}:{metrics}/metrics"),
            env,
        ),
        Component(
            BINDER,
            [str(programs.binder), *_flags(binder)],
            Probe(f"http://{HOST}:{binder_metrics}/metrics"),
            env,
        ),
    ]


def _flags(flags: Mapping[str, object]) -> list[str]:
    return [f"--{name}={value}" for name, value in flags.items()]
