# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Our manager as a process under a given role, and its requests from the API server's audit log."""

import dataclasses
import json
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from controller_runtime.apis.core.v1 import Namespace, Secret
from controller_runtime.client import MERGE, LiveClient, raw_patch
from controller_runtime.envtest import (
    HOST,
    Environment,
    apply_manifests,
    eventually,
    free_ports,
)
from controller_runtime.machinery import Unstructured
from controller_runtime.rest import Config
from ctrl_testkit.faults import audited as entries
from trainerctl.localcluster import manifests
from trainerctl.localcluster.access import role_binding

from hack import rbac
from testkit import processes
from testkit.auditedservers import GANGS, audited_server

GROUP = "under-test"
API = "rbac.authorization.k8s.io"
OF_THE_PROGRAM = [part for part in rbac.Part if part is not rbac.Part.POD_GROUPER]
_OPEN = ("/api", "/healthz", "/livez", "/openapi", "/readyz", "/version")
"""Paths of ``system:discovery``, which every user may read."""


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
        await eventually(lambda: processes.is_ready(self.health), timeout=30, reason="the manager is ready")


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
    flags = [
        "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
        f"--feature-gates=WatchList=false,{GANGS.feature_gates}",
        *[flag for flag in GANGS.api_server_flags if not flag.startswith("--feature-gates")],
    ]
    with audited_server(audit_log, GROUP, flags=flags) as environment:
        yield environment


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
    for entry in entries(audit_log):
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
    started: list[processes.Process] = []

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
        said: dict[str, Any] = {
            "metrics": {
                "bindAddress": f"{HOST}:{metrics}",
                "requireAuthorization": authorized_metrics and not grouper,
            },
            "health": {"healthProbeBindAddress": f"{HOST}:{health}"},
            "webhook": {"host": HOST, "port": serving},
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
        }
        if grouper:
            said["podGrouper"] = {
                "defaultPrioritiesConfigMap": {"name": "defaults", "namespace": namespace},
                "namespaceLabelSelector": {"kubernetes.io/metadata.name": namespace},
            }
        kubeconfig = audited.kubeconfig_for(user, [GROUP])
        flags = processes.manager_flags(tmp_path, kubeconfig, name=user, **{**said, **options})
        flags += ["--controllers=podgrouper"] if grouper else []
        process = processes.start_manager(flags, tmp_path / f"{user}.log")
        started.append(process)
        await eventually(lambda: is_alive(health), timeout=60, reason="the manager answers")
        yield Run(user, process.log, metrics, health, status, lambda: read(audit_log, user))
        process.kill()

    async def is_alive(health: int) -> bool:
        return (await processes.answer(f"http://{HOST}:{health}/healthz"))[0] == 200

    yield run
    for process in started:
        process.kill()


async def label(client: LiveClient, namespace: str, value: str) -> None:
    """Label a namespace, so that the API server calls the webhooks of the manager under test for its objects."""
    body = json.dumps({"metadata": {"labels": {"under-test": value}}}).encode()
    await client.patch(Namespace.from_dict({"metadata": {"name": namespace}}), raw_patch(MERGE, body))
