# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Our manager as a process under a given role, and its requests from the API server's audit log."""

import dataclasses
import json
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import IO, Any

import anyio
import pytest
import yaml
from controller_runtime.apis.core.v1 import Namespace, Secret
from controller_runtime.client import MERGE, LiveClient, raw_patch
from controller_runtime.envtest import (
    Binaries,
    Environment,
    apply_manifests,
    eventually,
    free_ports,
    open_crd,
)
from controller_runtime.machinery import GVK, Unstructured
from controller_runtime.rest import Config, Request, RESTMapper, Transport, TransportError
from trainerctl.localcluster import manifests
from trainerctl.localcluster.access import role_binding
from trainerctl.localcluster.options import Options
from trainerctl.localcluster.tools import JOBSET, JOBSETS

from hack import rbac

ROOT = Path(__file__).parents[3]
GROUP = "under-test"
API = "rbac.authorization.k8s.io"
OF_THE_PROGRAM = [part for part in rbac.Part if part is not rbac.Part.POD_GROUPER]
_OPEN = ("/api", "/healthz", "/livez", "/openapi", "/readyz", "/version")
"""Paths of ``system:discovery``, which every user may read."""
_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": [GROUP]}, {"level": "None"}],
}


@dataclasses.dataclass(frozen=True)
class Asked:
    """The requests of a manager that the API server recorded."""

    granted: frozenset[rbac.Grant]
    refused: frozenset[rbac.Grant]


@dataclasses.dataclass
class Run:
    """A running manager."""

    role: str
    """The name of its ClusterRole."""
    log: Path
    metrics: int
    health: int
    status: int
    record: Callable[[], Asked]

    def asked(self) -> Asked:
        """Return the requests so far."""
        return self.record()

    async def ready(self) -> None:
        """Wait until its webhooks answer, which the API server calls for every Trainer object of the test."""
        await eventually(lambda: answers(self.health, "/readyz"), timeout=30, reason="the manager is ready")


RunUnder = Callable[..., AbstractAsyncContextManager[Run]]


@pytest.fixture(scope="session")
def audit_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit") / "audit.log"


@pytest.fixture(scope="session")
def audited(audit_log: Path) -> Iterator[Environment]:
    """Yield an API server that records the requests of managers.

    Its clients have to list before they watch, as without streaming lists, and can block an owner's deletion only if
    they may change its finalizers.
    """
    policy = audit_log.with_name("policy.json")
    policy.write_text(json.dumps(_POLICY))
    gangs = Options(kubernetes="1.35", workloads=True)
    environment = Environment(
        api_server_flags=[
            f"--audit-policy-file={policy}",
            f"--audit-log-path={audit_log}",
            "--audit-log-mode=blocking",
            "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
            f"--feature-gates=WatchList=false,{gangs.feature_gates}",
            *[flag for flag in gangs.api_server_flags if not flag.startswith("--feature-gates")],
        ],
        version=gangs.kubernetes,
    )

    async def start() -> None:
        await environment.start()
        binaries = await Binaries().locate(JOBSETS["0.11"])
        groups = [
            open_crd(GVK("scheduling.x-k8s.io", "v1alpha1", "PodGroup"), subresources={"status": {}}),
            open_crd(GVK("scheduling.volcano.sh", "v1beta1", "PodGroup"), subresources={"status": {}}),
        ]
        await environment.install_crds(*manifests.crds(binaries[JOBSET.name]), *groups)
        async with Transport(environment.config) as transport:
            client = LiveClient(transport, RESTMapper(transport))
            await client.create(Namespace.from_dict({"metadata": {"name": manifests.TRAINER_NAMESPACE}}))

    anyio.run(start)
    yield environment
    anyio.run(environment.stop)


@pytest.fixture
def rest_config(audited: Environment) -> Config:
    """Return the client configuration of an administrator of this folder's server."""
    return dataclasses.replace(audited.config)


def _path(uri: str) -> dict[str, str]:
    """Return the path of a URI in place of a resource, or nothing for a path that every user may read."""
    path = uri.partition("?")[0]
    return {} if path.startswith(_OPEN) else {"resource": path}


def read(audit_log: Path, user: str) -> Asked:
    """Return the requests of a user; an apply that creates an object or is refused counts as patch and as create."""
    granted: set[rbac.Grant] = set()
    refused: set[rbac.Grant] = set()
    for line in audit_log.read_text().rpartition("\n")[0].splitlines():  # the last line may be half written
        entry = json.loads(line)
        if entry["user"]["username"] != user:
            continue
        ref = entry.get("objectRef") or _path(entry["requestURI"])
        if "resource" not in ref:
            continue
        resource = ref["resource"] + (f"/{ref['subresource']}" if "subresource" in ref else "")
        group, verb, status = ref.get("apiGroup", ""), entry["verb"], entry.get("responseStatus", {})
        found = refused if status.get("code") == 403 else granted
        found.add((group, resource, verb))
        if verb == "patch" and status.get("code") in {201, 403}:
            found.add((group, resource, "create"))
    return Asked(frozenset(granted), frozenset(refused))


@pytest.fixture
def run_under(
    audited: Environment, audit_log: Path, live_client: LiveClient, namespace: str, tmp_path: Path
) -> Iterator[RunUnder]:
    """Yield a function that runs the program, or the pod grouper alone, under ``rules``.

    Without ``rules`` it has its shipped roles except the grants ``without``. Further options are keys of its
    Configuration.
    """
    processes: list[subprocess.Popen[bytes]] = []

    @asynccontextmanager
    async def run(
        without: Collection[rbac.Grant] = (),
        *,
        grouper: bool = False,
        rules: list[dict[str, Any]] | None = None,
        authorized_metrics: bool = True,
        unused_webhooks: Collection[str] = (),
        **options: Any,
    ) -> AsyncIterator[Run]:
        user = f"manager-{secrets.token_hex(4)}"
        if rules is None:
            parts = [rbac.Part.POD_GROUPER] if grouper else OF_THE_PROGRAM
            granted = set().union(*map(rbac.collected, parts)) - set(without)
            named = {grant: names for part in parts for grant, names in rbac.resource_names(part).items()}
            rules = rbac.rules(granted, named)
        subject = {"apiGroup": API, "kind": "User", "name": user}
        role = {
            "apiVersion": f"{API}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": user},
            "rules": rules,
        }
        binding = role_binding(user, subject)
        metrics, health, serving, status = free_ports(4)
        hooks = manifests.trainer_webhooks(f"https://127.0.0.1:{serving}", b"")
        for kind, hook in ((each["kind"], hook) for each in hooks for hook in each["webhooks"]):
            wanted = "nowhere" if kind in unused_webhooks else namespace
            hook["namespaceSelector"] = {"matchLabels": {"under-test": wanted}}
        await label(live_client, namespace, namespace)
        secret = {"metadata": {"name": f"cert-{user}", "namespace": manifests.TRAINER_NAMESPACE}}
        await live_client.create(Secret.from_dict(secret))
        await apply_manifests(live_client, [role, binding, *([] if grouper else hooks)], owner="test")

        async def in_force() -> bool:
            review = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {
                    "user": user,
                    "resourceAttributes": {
                        "group": "trainer.kubeflow.org",
                        "resource": "trainjobs",
                        "verb": "get",
                    },
                },
            }
            said = await live_client.create(Unstructured.wrap(review))
            return bool(said.to_dict()["status"]["allowed"])

        await eventually(in_force, reason="the API server knows the role")
        kubeconfig, configuration = tmp_path / f"{user}.kubeconfig", tmp_path / f"{user}.yaml"
        kubeconfig.write_text(yaml.safe_dump(audited.kubeconfig_for(user, [GROUP])))
        kubeconfig.chmod(0o600)
        said = {
            "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
            "kind": "Configuration",
            "metrics": {
                "bindAddress": f"127.0.0.1:{metrics}",
                "requireAuthorization": authorized_metrics and not grouper,
            },
            "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
            "webhook": {"host": "127.0.0.1", "port": serving},
            "statusServer": {"port": status},
            "featureGates": {"TrainJobStatus": True, "FailureEvidence": True},
            "leaderElection": {
                "leaderElect": True,
                "resourceName": user,
                "resourceNamespace": manifests.TRAINER_NAMESPACE,
                # Long enough to keep the lease while the machine pauses.
                "leaseDuration": "60s",
                "renewDeadline": "40s",
                "retryPeriod": "500ms",
            },
            "certManagement": {"webhookSecretName": f"cert-{user}"},
            "clientConnection": {"qps": -1},
        }
        if grouper:
            said["podGrouper"] = {
                "defaultPrioritiesConfigMap": {"name": "defaults", "namespace": namespace},
                "namespaceLabelSelector": {"kubernetes.io/metadata.name": namespace},
            }
        configuration.write_text(yaml.safe_dump(said | options))
        written = tmp_path / f"{user}.log"
        with written.open("wb") as log:
            arguments = [f"--config={configuration}", f"--kubeconfig={kubeconfig}"]
            process = launch([*arguments, *(["--controllers=podgrouper"] if grouper else [])], log)
        processes.append(process)
        await eventually(lambda: answers(health, "/healthz"), timeout=60, reason="the manager answers")
        yield Run(user, written, metrics, health, status, lambda: read(audit_log, user))
        process.kill()
        process.wait()

    yield run
    for process in processes:
        process.kill()
        process.wait()


async def label(client: LiveClient, namespace: str, value: str) -> None:
    """Label a namespace, so that the API server calls the webhooks of the manager under test for its objects."""
    body = json.dumps({"metadata": {"labels": {"under-test": value}}}).encode()
    await client.patch(Namespace.from_dict({"metadata": {"name": namespace}}), raw_patch(MERGE, body))


def launch(arguments: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start the program."""
    command = [sys.executable, "-m", "pkg.app", *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)


async def answers(port: int, path: str) -> bool:
    """Return True if a GET is answered by 200."""
    async with Transport(Config(f"http://127.0.0.1:{port}")) as probe:
        try:
            response = await probe.send(Request("GET", path))
        except TransportError:
            return False
        await response.read()
        return response.status == 200
