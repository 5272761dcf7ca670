# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``helm install``, ``upgrade`` and ``uninstall`` of the chart on a real API server, with the manager that it describes.

No kubelet runs. The manager is a process with the arguments, the Configuration and the rights of the installed
Deployment. The API server reaches its webhooks by their Service: an egress proxy takes the place of the pod network.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import socketserver
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
import yaml
from controller_runtime.apis.authentication.v1 import TokenRequest, TokenRequestSpec
from controller_runtime.apis.core.v1 import Namespace, ServiceAccount
from controller_runtime.client import LiveClient
from controller_runtime.envtest import (
    Binaries,
    Environment,
    eventually,
    free_ports,
)
from controller_runtime.machinery import GVK, NamespacedName, Object, Unstructured, unstructured
from controller_runtime.machinery.errors import NotFoundError, StatusError
from controller_runtime.rest import RESTMapper, Transport
from trainerctl.localcluster import manifests
from trainerctl.localcluster.tools import JOBSET

from hack import chart
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from testkit import charts
from testkit.builders import written_runtime, written_train_job
from testkit.charts import NAME, NAMESPACE
from testkit.clusters import job_set_at
from testkit.processes import ROOT, running_manager

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

MANAGER: Final = NamespacedName(NAMESPACE, f"{NAME}-controller-manager")
DEPLOYMENT = unstructured(GVK("apps", "v1", "Deployment"))
CONFIG_MAP = unstructured(GVK("", "v1", "ConfigMap"))
CRD = unstructured(GVK("apiextensions.k8s.io", "v1", "CustomResourceDefinition"))
VALIDATING = unstructured(GVK("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration"))
MUTATING = unstructured(GVK("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration"))
CLUSTER_ROLE = unstructured(GVK("rbac.authorization.k8s.io", "v1", "ClusterRole"))
CRDS = tuple(
    f"{name}.trainer.kubeflow.org" for name in ("trainjobs", "trainingruntimes", "clustertrainingruntimes")
)

Manifest = dict[str, Any]


class Network(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """The proxy of the API server's egress: every address of the cluster network is the manager's webhook port."""

    daemon_threads = True

    def __init__(self, path: Path, port: int) -> None:
        self.port = port
        super().__init__(str(path), _Connect)


class _Connect(socketserver.StreamRequestHandler):
    server: Network

    def handle(self) -> None:
        while self.rfile.readline().strip():
            pass
        try:
            there = socket.create_connection(("127.0.0.1", self.server.port))
        except OSError:
            self.request.sendall(b"HTTP/1.1 503 Unavailable\r\n\r\n")
            return
        self.request.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        with there, selectors.DefaultSelector() as ready:
            ready.register(self.request, selectors.EVENT_READ, there)
            ready.register(there, selectors.EVENT_READ, self.request)
            with contextlib.suppress(OSError):
                while all(self._pass(key.fileobj, key.data) for key, _ in ready.select()):
                    pass

    @staticmethod
    def _pass(source: Any, target: socket.socket) -> bool:
        data = source.recv(65536)
        target.sendall(data)
        return bool(data)


class Cluster:
    """An API server with JobSet's CRDs, helm, and the chart without the charts that it depends on."""

    def __init__(
        self, environment: Environment, client: LiveClient, folder: Path, helm: Path, port: int
    ) -> None:
        self.environment = environment
        self.client = client
        self.folder = folder
        self._helm = helm
        self._port = port
        (folder / "admin").write_text(yaml.safe_dump(environment.kubeconfig_for("admin", ["system:masters"])))
        self._chart = charts.copied(chart.CHART, folder, "jobset", "lws")

    async def helm(self, *arguments: str, refused: bool = False) -> str:
        """Run helm as an administrator; return its output."""
        environ = {
            "HOME": str(self.folder),
            "PATH": "/usr/bin:/bin",
            "KUBECONFIG": str(self.folder / "admin"),
        }
        done = await anyio.run_process(
            [str(self._helm), *arguments, f"--namespace={NAMESPACE}"], env=environ, check=False
        )
        assert (done.returncode != 0) == refused, done.stderr.decode()
        return (done.stderr if refused else done.stdout).decode()

    async def release(
        self, command: str, values: Manifest, *flags: str, refused: bool = False, other: Path | None = None
    ) -> str:
        """Install or upgrade the release with values, and with ports that are free on this machine."""
        health, metrics = free_ports(2)
        local = {
            "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
            "metrics": {"bindAddress": f"127.0.0.1:{metrics}"},
            "webhook": {"host": "127.0.0.1", "port": self._port},
        }
        given, ports = self.folder / "values.json", self.folder / "ports.json"
        given.write_text(json.dumps(values))
        # Upstream's chart takes no hosts in addresses; nothing runs with them.
        manager = {"config": local} if other is None else {}
        ports.write_text(json.dumps({"jobset": {"install": False}, "manager": manager}))
        files = ["-f", str(given), "-f", str(ports)]
        return await self.helm(command, NAME, str(other or self._chart), *files, *flags, refused=refused)

    @asynccontextmanager
    async def manager(self, name: NamespacedName = MANAGER) -> AsyncIterator[None]:
        """Run the container of the installed Deployment, as its service account, for the time of the block."""
        deployment = (await self.client.get(DEPLOYMENT, name)).to_dict()
        pod = deployment["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert container["command"] == ["/manager"]
        paths = await self._mounted(pod, container)
        arguments = [_local(each, paths) for each in container["args"]]
        kubeconfig = await self._kubeconfig(pod["serviceAccountName"])
        (self.folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
        flags = [f"--kubeconfig={self.folder / 'kubeconfig'}", *arguments]
        with running_manager(flags, self.folder / "manager.log"):
            yield

    async def _kubeconfig(self, account: str) -> Manifest:
        """Return the kubeconfig of the pods of a service account, which must exist."""
        found = await self.client.get(ServiceAccount, (NAMESPACE, account))
        wanted = TokenRequest(spec=TokenRequestSpec(expiration_seconds=3600))
        issued = await self.client.subresource("token").create(found, wanted)
        kubeconfig: Manifest = dict(self.environment.kubeconfig_for("pod"))
        kubeconfig["users"][0]["user"] = {"token": issued.status.token}
        kubeconfig["contexts"][0]["context"]["namespace"] = NAMESPACE
        return kubeconfig

    async def _mounted(self, pod: Manifest, container: Manifest) -> dict[str, Path]:
        """Write the ConfigMaps that the container mounts; return the local paths by the paths in the container."""
        volumes = {each["name"]: each for each in pod["volumes"]}
        found = {}
        for mount in container["volumeMounts"]:
            if (source := volumes[mount["name"]].get("configMap")) is None:
                continue
            data = (await self.client.get(CONFIG_MAP, (NAMESPACE, source["name"]))).to_dict()["data"]
            found[mount["mountPath"]] = path = self.folder / "mounted.yaml"
            path.write_text(data[mount["subPath"]])
        return found

    async def works(self, job: str) -> None:
        """Return when the webhooks refuse a TrainJob without a runtime, and another one has its JobSet."""

        async def refuses() -> bool:
            try:
                await self.client.create(written_train_job("default", "missing", name="refused"))
            except StatusError as error:
                return "denied the request" in str(error)
            return False

        await eventually(refuses, timeout=60, reason="the webhooks are reached by their Service")
        await self.client.create(written_train_job("default", "plain", name=job))
        await job_set_at(self.client, ("default", job))

    async def admits(self, obj: Object) -> None:
        """Create an object as soon as the webhooks answer."""

        async def created() -> bool:
            try:
                await self.client.create(obj)
            except StatusError as error:
                if "failed calling webhook" in str(error):
                    return False
                raise
            return True

        await eventually(created, timeout=60, reason="the webhooks answer")

    async def exists(self, kind: type[Object], name: str) -> bool:
        try:
            await self.client.get(kind, ("", name))
        except NotFoundError:
            return False
        return True


def _local(argument: str, paths: dict[str, Path]) -> str:
    flag, _, value = argument.partition("=")
    return f"{flag}={paths[value]}" if value in paths else argument


@pytest.fixture(scope="session")
def helm() -> Path:
    return charts.helm()


@pytest.fixture
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    path = tmp_path_factory.mktemp("net") / "s"
    with Network(path, free_ports(1)[0]) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
async def cluster(helm: Path, network: Network, tmp_path: Path) -> AsyncIterator[Cluster]:
    egress = tmp_path / "egress.yaml"
    transport = {"uds": {"udsName": network.server_address}}
    connection = {"proxyProtocol": "HTTPConnect", "transport": transport}
    egress.write_text(yaml.safe_dump({
        "apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration",
        "egressSelections": [{"name": "cluster", "connection": connection}],
    }))  # fmt: skip
    binaries = await Binaries().locate(JOBSET)
    jobset = [
        each for each in manifests.crds(binaries[JOBSET.name]) if each["spec"]["group"] == "jobset.x-k8s.io"
    ]
    flags = [f"--egress-selector-config-file={egress}"]
    async with (
        Environment(crds=jobset, api_server_flags=flags) as environment,
        Transport(environment.config) as transport_,
    ):
        client = LiveClient(transport_, RESTMapper(transport_))
        await client.create(Namespace.from_dict({"metadata": {"name": NAMESPACE}}))
        yield Cluster(environment, client, tmp_path, helm, network.port)


VALUES: Final[dict[str, Manifest]] = {
    "defaults": {},
    "names": {
        "fullnameOverride": "kft",
        "commonLabels": {"team": "ml"},
        "manager": {"config": {"certManagement": {"webhookSecretName": "own", "webhookServiceName": "hook"}}},
    },
    "more": {
        "manager": {
            "replicas": 2,
            "args": ["--zap-log-level=debug", "--feature-gates=TrainJobStatus=true"],
            "podDisruptionBudget": {"enabled": True},
            "networkPolicy": {"enabled": True},
            "priorityClassName": "system-cluster-critical",
            "config": {"podGrouper": {"enable": True}, "metrics": {"requireAuthorization": True}},
        }
    },
    "v2.1": {
        "manager": {
            "annotations": {"sidecar.istio.io/inject": "false"},
            "resources": {"requests": {"cpu": "50m"}},
            "config": {"compatibilityVersion": "2.1", "leaderElection": {"leaderElect": False}},
        }
    },
}


@pytest.mark.parametrize("case", VALUES)
async def test_a_release_is_installed_upgraded_and_uninstalled(case: str, cluster: Cluster) -> None:
    values = VALUES[case]
    name = NamespacedName(NAMESPACE, f"{values.get('fullnameOverride', NAME)}-controller-manager")
    await cluster.release("install", values)
    async with cluster.manager(name):
        await cluster.admits(written_runtime("default", "plain"))
        await cluster.works("before")
    installed = await cluster.client.get(JobSet, ("default", "before"))
    deployment = await cluster.client.get(DEPLOYMENT, name)

    later = {**values, "image": {"tag": "9.9.9"}}
    await cluster.release("upgrade", later)
    upgraded = await cluster.client.get(DEPLOYMENT, name)
    assert upgraded.metadata.uid == deployment.metadata.uid
    (container,) = upgraded.to_dict()["spec"]["template"]["spec"]["containers"]
    assert container["image"].endswith(":9.9.9")
    async with cluster.manager(name):
        await cluster.works("after")
    kept = await cluster.client.get(JobSet, ("default", "before"))
    assert kept.metadata.resource_version == installed.metadata.resource_version

    await cluster.helm("uninstall", NAME)
    assert [await cluster.exists(CRD, each) for each in CRDS] == [True] * 3
    assert (await cluster.client.get(TrainJob, ("default", "before"))).metadata.deletion_timestamp is None
    assert not await cluster.exists(VALIDATING, "validator.trainer.kubeflow.org")
    assert not await cluster.exists(CLUSTER_ROLE, name.name)
    await cluster.release("install", values)
    async with cluster.manager(name):
        await cluster.works("again")


async def test_a_kustomize_installation_is_taken_over_as_the_documentation_describes(
    cluster: Cluster, kustomize: Callable[[Path], list[Manifest]]
) -> None:
    objects = kustomize(ROOT / "config" / "default")
    crds = [each for each in objects if each["kind"] == "CustomResourceDefinition"]
    await cluster.environment.install_crds(*crds)
    for each in objects:
        if each not in crds:
            await cluster.client.apply(Unstructured.wrap(each), field_owner="kubectl", force=True)

    assert "cannot be imported into the current release" in await cluster.release("install", {}, refused=True)
    await cluster.client.delete(await cluster.client.get(DEPLOYMENT, MANAGER))
    await cluster.release("install", {}, "--take-ownership")
    async with cluster.manager():
        await cluster.admits(written_runtime("default", "plain"))
        await cluster.works("job")
    await cluster.release("upgrade", {})
    owned = yaml.load_all(await cluster.helm("get", "manifest", NAME), Loader=yaml.CSafeLoader)
    assert identities(objects) - identities(filter(None, owned)) == {("Namespace", NAMESPACE)}


async def test_upstreams_release_is_upgraded_and_rolled_back(cluster: Cluster, upstream: Path) -> None:
    theirs = charts.copied(upstream / "charts" / NAME, cluster.folder / "upstream", "jobset")
    await cluster.release("install", {"image": {"tag": "v2.1.0"}}, other=theirs)
    before = await cluster.client.get(DEPLOYMENT, MANAGER)

    await cluster.release("upgrade", {}, "--take-ownership")
    async with cluster.manager():
        await cluster.admits(written_runtime("default", "plain"))
        await cluster.works("job")
    upgraded = await cluster.client.get(DEPLOYMENT, MANAGER)
    assert upgraded.metadata.uid == before.metadata.uid
    assert await cluster.exists(MUTATING, "defaulter.trainer.kubeflow.org")

    await cluster.helm("rollback", NAME, "1")
    after = await cluster.client.get(DEPLOYMENT, MANAGER)
    assert after.to_dict()["spec"]["template"] == before.to_dict()["spec"]["template"]
    assert not await cluster.exists(MUTATING, "defaulter.trainer.kubeflow.org")
    assert [await cluster.exists(CRD, each) for each in CRDS] == [True] * 3
    assert (await cluster.client.get(TrainJob, ("default", "job"))).metadata.deletion_timestamp is None


def identities(objects: Iterable[Manifest]) -> set[tuple[str, str]]:
    return {(each["kind"], each["metadata"]["name"]) for each in objects}
