# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""One etcd and kube-apiserver for a workload, and the access of managers to it."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import psutil
import yaml
from controller_runtime import client, rest
from controller_runtime.apis.core.v1 import Namespace
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.envtest import (
    Binaries,
    Environment,
    Progress,
    apply_manifests,
    eventually,
    kubeconfig,
    open_crd,
)
from controller_runtime.machinery import GVK
from controller_runtime.machinery.crd import custom_resource_definition
from controller_runtime.machinery.errors import StatusError
from harness import objects
from harness.api import Api
from trainerctl.localcluster import manifests
from trainerctl.localcluster.access import role_binding
from trainerctl.localcluster.tools import JOBSET

from pkg.apis.kai.v2alpha2 import PodGroup

_USER: Final = f"system:serviceaccount:{manifests.TRAINER_NAMESPACE}:{manifests.TRAINER_ACCOUNT}"
_AUDIT: Final = "audit.log"
_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata", "users": [_USER]}, {"level": "None"}],
}
_FOREIGN: Final = (
    GVK("scheduling.x-k8s.io", "v1alpha1", "PodGroup"),
    GVK("scheduling.volcano.sh", "v1beta1", "PodGroup"),
)


class Cluster:
    """An API server with the kinds and runtimes of the workloads. Only the manager under test runs in the cluster."""

    def __init__(self, environment: Environment, transport: rest.Transport, folder: Path) -> None:
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self.audit = folder / _AUDIT
        self.api = Api(transport)
        self.authority = environment.control_plane.authority
        self._environment = environment
        self.etcd = self._process("etcd")
        self.api_server = self._process("kube-apiserver")
        self._live = client.LiveClient(transport, rest.RESTMapper(transport))

    def _process(self, component: str) -> psutil.Process:
        return psutil.Process(self._environment.control_plane.supervisor.processes[component].identity.pid)

    async def restart_api_server(self) -> None:
        """Kill the API server, and return when it is ready again and serves the kinds of the workloads."""
        self._environment.control_plane.kill_api_server()
        await self._environment.control_plane.start_api_server(timeout=300)
        self.api_server = self._process("kube-apiserver")

        async def served() -> bool:
            try:
                for path in (objects.TRAIN_JOBS, objects.JOB_SETS):
                    version = await self.api.version(path)
                    query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "1"}
                    await self.api.send("GET", path, query=query)
            except StatusError:
                return False
            return True

        await eventually(served, timeout=300, reason="the API server serves TrainJobs and JobSets")

    async def install(self) -> None:
        """Create kinds, namespaces, runtimes and the managers' service account, which has all permissions."""
        jobset = (await Binaries().locate(JOBSET))[JOBSET.name]
        await self._environment.install_crds(
            *manifests.crds(jobset),
            custom_resource_definition(PodGroup),
            *(open_crd(gvk) for gvk in _FOREIGN),
        )
        for name in (objects.NAMESPACE, manifests.TRAINER_NAMESPACE):
            await self._live.create(Namespace(metadata=ObjectMeta(name=name)))
        account = await self._environment.add_service_account(
            manifests.TRAINER_NAMESPACE, manifests.TRAINER_ACCOUNT, expiration_seconds=86_400
        )
        binding = role_binding(
            "cluster-admin", {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": _USER}
        )
        binding["metadata"]["name"] = "bench"
        await apply_manifests(self._live, [binding, *objects.runtimes()], owner="bench")
        authorization = (await account.credentials.headers())["Authorization"]
        document = kubeconfig(
            self._environment.control_plane.url,
            self.authority.certificate,
            user="manager",
            token=authorization.removeprefix("Bearer "),
        )
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(yaml.safe_dump(document))

    def requests(self, begin: int, end: int) -> Counter[str]:
        """Count the manager's requests between two sizes of the audit log, by verb and resource."""
        counted: Counter[str] = Counter()
        with self.audit.open("rb") as log:
            log.seek(begin)
            for line in log.read(end - begin).splitlines():
                entry = json.loads(line)
                target = entry.get("objectRef") or {}
                what = target.get("resource") or "discovery"
                what += f"/{target['subresource']}" if target.get("subresource") else ""
                code = (entry.get("responseStatus") or {}).get("code", 0)
                counted[f"{entry['verb']} {what}{f' -> {code}' if code >= 400 else ''}"] += 1
        return counted

    def audited(self) -> int:
        """Return the size of the audit log, which grows with every request of the manager."""
        with contextlib.suppress(FileNotFoundError):
            return self.audit.stat().st_size
        return 0


def api_server_flags(folder: Path) -> list[str]:
    """Return the flags with which the API server logs the manager's requests into ``folder``."""
    policy = folder / "policy.json"
    policy.write_text(json.dumps(_POLICY))
    log = folder / _AUDIT
    return [
        f"--audit-policy-file={policy}",
        f"--audit-log-path={log}",
        "--audit-log-mode=blocking",
        "--audit-log-maxsize=4096",
    ]


@asynccontextmanager
async def cluster() -> AsyncIterator[Cluster]:
    """Run a control plane with the objects that workloads need, during the body."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        async with (
            Environment(api_server_flags=api_server_flags(folder), progress=Progress()) as environment,
            rest.Transport(environment.config) as transport,
        ):
            made = Cluster(environment, transport, folder)
            await made.install()
            yield made


async def empty(cluster: Cluster) -> None:
    """Delete the objects that earlier runs left. No manager may run meanwhile."""
    await cluster.api.wipe(*objects.COLLECTIONS)
