# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A cluster changes from a Go manager to ours and back: no object is rewritten without need, and no field is lost.

``docs/migration.md`` has the steps.
"""

import copy
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from controller_runtime.apis.core.v1 import ConfigMap, Pod
from controller_runtime.client import MERGE, LiveClient, raw_patch
from controller_runtime.envtest import CRD, HOST, Binary, eventually, free_ports, point_at, wait_established
from controller_runtime.machinery import GVK, Object, Unstructured, unstructured
from controller_runtime.machinery.errors import ForbiddenError, ServerError
from trainerctl.localcluster.cluster import Cluster

from pkg import shipped
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainJob
from testkit import programs
from testkit.builders import pod_override, runtime_patch, train_job_document
from testkit.clusters import job_set_at
from testkit.processes import ROOT, running, running_manager

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

Document = dict[str, Any]
JOB = unstructured(GVK("batch", "v1", "Job"))
WATCHED: tuple[type[Object], ...] = (TrainJob, JobSet, JOB, Pod, ConfigMap)
TOLERATIONS = [{"key": "any", "operator": "Exists"}]
FIRST: Document = {
    "podTemplateOverrides": [pod_override({"tolerations": TOLERATIONS})],
    "labels": {"first": "yes"},
}
SECOND: Document = {
    "runtimePatches": [runtime_patch("example.com/user", {"tolerations": TOLERATIONS})],
    "activeDeadlineSeconds": 3600,
}


@dataclass(frozen=True)
class Release:
    """A release of the Go manager, the fields that its clients write, and the profile that replaces it."""

    version: str
    fields: Document
    others: Document
    profile: str
    older: bool = False
    """True if the profile is that of a newer release, in which snapshots are new and runtimes have no finalizer."""


RELEASES = [
    pytest.param(Release("2.1.0", FIRST, SECOND, "2.1"), id="v2.1.0"),
    pytest.param(Release("2.2.1", SECOND, FIRST, "2.3", older=True), id="v2.2.1", marks=pytest.mark.nightly),
    pytest.param(Release("2.3.0", SECOND, FIRST, "2.3"), id="v2.3.0"),
]


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> Release:
    found: Release = request.param
    return found


@pytest.fixture
def binary(release: Release) -> Binary:
    """Return the Go manager."""
    return anyio.run(programs.locate_go_manager, release.version)


class Swap:
    """The managers of one cluster; only one of them runs at a time, and all use the same webhook port."""

    def __init__(
        self, cluster: Cluster, client: LiveClient, release: Release, binary: Binary, folder: Path
    ) -> None:
        self._cluster = cluster
        self._client = client
        self._release = release
        self._binary = binary
        self._folder = folder
        self._port, self._health = free_ports(2)
        own = yaml.safe_load(self._own_config.read_text())
        self._certificates = Path(own["webhook"]["certDir"])
        self._canaries = 0

    @property
    def _own_config(self) -> Path:
        return Path(self._cluster.manager_arguments[0].partition("=")[2])

    @contextmanager
    def go(self, *, elects: bool = False) -> Iterator[None]:
        """Run the Go manager, with leader election if ``elects`` is true."""
        serving = self._folder / "k8s-webhook-server" / "serving-certs"
        serving.mkdir(parents=True, exist_ok=True)
        for name in ("tls.crt", "tls.key"):
            (serving / name).write_bytes((self._certificates / name).read_bytes())
        config = {
            "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
            "kind": "Configuration",
            "certManagement": {"enable": False},
            "webhook": {"host": HOST, "port": self._port},
            "metrics": {"bindAddress": "0"},
            "health": {"healthProbeBindAddress": f"{HOST}:{self._health}"},
            "leaderElection": {
                "leaderElect": elects,
                "resourceName": "trainer.kubeflow.org",
                "resourceNamespace": "default",
                "leaseDuration": "15s",
                "renewDeadline": "10s",
                "retryPeriod": "2s",
            },
        }
        arguments = [f"--config={self._written(config)}", f"--kubeconfig={self._cluster.kubeconfig}"]
        command, environ = [self._binary.path, *arguments], {"TMPDIR": str(self._folder)}
        with running(command, self._folder / "go.log", cwd=ROOT, environ=environ, exit_code=None):
            yield

    @contextmanager
    def ours(self) -> Iterator[None]:
        """Run this project's manager with its shipped rights."""
        config = yaml.safe_load(self._own_config.read_text())
        config["webhook"]["port"] = self._port
        config["metrics"] = {"bindAddress": "0"}
        config["health"] = {"healthProbeBindAddress": f"{HOST}:{self._health}"}
        config["compatibilityVersion"] = self._release.profile
        arguments = [f"--config={self._written(config)}", self._cluster.manager_arguments[1]]
        with running_manager(arguments, self._folder / "ours.log"):
            yield

    def _written(self, config: Document) -> Path:
        file = self._folder / "config.yaml"
        file.write_text(yaml.safe_dump(config))
        return file

    async def use(self, manifests: list[Document]) -> None:
        """Replace the CRDs and the webhook configurations by those among the manifests."""
        for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
            hooks = unstructured(GVK("admissionregistration.k8s.io", "v1", kind))
            for each in await self._client.list(hooks):
                if "trainer.kubeflow.org" in each.name:
                    await self._client.delete(each)
        names = []
        for manifest in manifests:
            if manifest["kind"] == "CustomResourceDefinition":
                names.append(manifest["metadata"]["name"])
                crd = CRD.from_dict(copy.deepcopy(manifest))
                stored = await self._client.get(CRD, ("", crd.name))
                crd.metadata.resource_version = stored.metadata.resource_version
                await self._client.update(crd)
            elif manifest["kind"].endswith("WebhookConfiguration"):
                authority = (self._cluster.directory / "pki" / "ca.crt").read_bytes()
                name = {"M": "defaulter", "V": "validator"}[manifest["kind"][0]] + ".trainer.kubeflow.org"
                pointed = point_at(manifest, f"https://{HOST}:{self._port}", authority, name=name)
                await self._client.create(Unstructured.wrap(pointed))
        await wait_established(self._client, names)

    async def works(self) -> None:
        """Return when the manager has built the JobSet of a new TrainJob."""
        self._canaries += 1
        name = f"canary-{self._canaries}"

        await self.admitted(self.train_job(name, "long", suspend=True))
        await job_set_at(self._client, ("default", name))

    async def train(self, name: str, runtime: str, **spec: Any) -> None:
        await self.admitted(self.train_job(name, runtime, **spec))

    @staticmethod
    def train_job(name: str, runtime: str, **spec: Any) -> Object:
        return Unstructured.wrap(train_job_document("default", runtime, name=name, **spec))

    async def admitted(self, obj: Object) -> None:
        """Create an object as soon as the webhooks answer and know the runtime.

        Both managers serve webhooks before their caches start. In a cluster, a Service sends reviews only to a manager
        that is ready. The caches learn of a new runtime a moment later.
        """

        async def created() -> bool:
            try:
                await self._client.create(obj)
            except ServerError:
                return False
            except ForbiddenError as error:
                if not re.search("the cache is not started|must be created before", str(error)):
                    raise
                return False
            return True

        await eventually(created, timeout=60, reason="the webhooks answer")

    async def versions(self) -> dict[tuple[str, str], str]:
        """Return the resource version of each object, except canaries, once none has changed for a while."""
        found = await self._versions()
        with anyio.fail_after(120):
            while True:
                await anyio.sleep(3)
                before, found = found, await self._versions()
                if found == before:
                    return found

    async def _versions(self) -> dict[tuple[str, str], str]:
        found = {}
        for kind in WATCHED:
            for each in await self._client.list(kind, namespace="default"):
                if not each.name.startswith("canary"):
                    found[kind.gvk.kind, each.name] = str(each.metadata.resource_version)
        for each in await self._client.list(ClusterTrainingRuntime):
            if each.name in ("long", "short"):
                found["ClusterTrainingRuntime", each.name] = str(each.metadata.resource_version)
        return found

    async def specs(self) -> dict[str, Document]:
        found = await self._client.list(TrainJob, namespace="default")
        return {each.name: each.to_dict()["spec"] for each in found if not each.name.startswith("canary")}

    async def until(self, name: str, wanted: Callable[[Document], bool]) -> None:
        async def reached() -> bool:
            return wanted((await self._client.get(TrainJob, ("default", name))).to_dict().get("status", {}))

        await eventually(reached, timeout=90, interval=0.5, reason=f"{name} has the wanted status")


def runs(status: Document) -> bool:
    return any(each.get("active") for each in status.get("jobsStatus", ()))


def has(condition: str) -> Callable[[Document], bool]:
    return lambda status: any(
        each["type"] == condition and each["status"] == "True" for each in status.get("conditions", ())
    )


def runtime(name: str, seconds: str) -> ClusterTrainingRuntime:
    """Return a runtime whose simulated pods run for that time."""
    (original,) = [
        each for each in shipped.manifests("runtimes") if each["metadata"]["name"] == "torch-distributed"
    ]
    made = copy.deepcopy(original)
    made["metadata"]["name"] = name
    (job,) = made["spec"]["template"]["spec"]["replicatedJobs"]
    pod = job["template"]["spec"]["template"]
    pod["metadata"] = {"annotations": {"sim.local/run-for": seconds}}
    return ClusterTrainingRuntime.from_dict(made)


async def test_a_swap_and_the_way_back_rewrite_nothing_and_lose_nothing(
    binary: Binary, bare: Cluster, bare_client: LiveClient, release: Release, tmp_path: Path
) -> None:
    swap = Swap(bare, bare_client, release, binary, tmp_path)
    await swap.use(binary.manifests())
    with swap.go():
        for each in (runtime("long", "1h"), runtime("short", "1s")):
            await swap.admitted(each)
        await swap.train("running", "long", **release.fields)
        await swap.train("suspended", "long", suspend=True, **release.fields)
        await swap.train("finished", "short", **release.fields)
        await swap.until("running", runs)
        await swap.until("suspended", has("Suspended"))
        await swap.until("finished", has("Complete"))
        await swap.works()
        before, specs = await swap.versions(), await swap.specs()

    # Replace only the image.
    with swap.ours():
        await swap.works()
        assert changed(before, await swap.versions(), release) == []

    # Replace the CRDs and the webhooks, and then use TrainJobs of the other generation.
    await swap.use([*shipped.crds(), *shipped.manifests("webhook")])
    with swap.ours():
        await swap.works()
        assert changed(before, await swap.versions(), release) == []
        assert await swap.specs() == specs
        await swap.train("other-running", "long", **release.others)
        await swap.train("other-finished", "short", **release.others)
        await swap.until("other-running", runs)
        await swap.until("other-finished", has("Complete"))
        body = b'{"spec": {"suspend": false}}'
        target = TrainJob.from_dict({"metadata": {"name": "suspended", "namespace": "default"}})
        await bare_client.patch(target, raw_patch(MERGE, body))
        await swap.until("suspended", runs)
        (job_set,) = [
            each for each in await bare_client.list(JobSet, namespace="default") if each.name == "suspended"
        ]
        (replicated,) = job_set.spec.replicated_jobs or []
        assert [each.key for each in replicated.template.spec.template.spec.tolerations or ()] == ["any"]
        before, specs = await swap.versions(), await swap.specs()

    # Go back to the Go image and the webhooks of its release, but keep the CRDs of this project.
    hooks = [each for each in binary.manifests() if each["kind"] != "CustomResourceDefinition"]
    await swap.use(hooks)
    with swap.go():
        await swap.works()
        assert changed(before, await swap.versions(), release) == []
        assert await swap.specs() == specs


@pytest.mark.parametrize("release", RELEASES[:1], indirect=True)
async def test_why_answers_beside_a_go_manager(
    binary: Binary, bare: Cluster, bare_client: LiveClient, release: Release, tmp_path: Path
) -> None:
    swap = Swap(bare, bare_client, release, binary, tmp_path)
    await swap.use(binary.manifests())

    async def why(name: str, wanted: tuple[int, str]) -> None:
        command = [sys.executable, "-m", "trainerctl", "why", name, "-n", "default", "-o", "json"]
        environ = {**os.environ, "KUBECONFIG": str(bare.kubeconfig)}

        async def answered() -> bool:
            done = await anyio.run_process(command, env=environ, cwd=ROOT, check=False)
            verdict = json.loads(done.stdout)
            first = verdict["findings"][0]["cause"] if verdict["findings"] else verdict["state"]
            return (done.returncode, first) == wanted

        await eventually(answered, timeout=90, interval=1, reason=f"why says {wanted} of {name}")

    with swap.go(elects=True):
        for each in (runtime("long", "1h"), runtime("short", "1s")):
            await swap.admitted(each)
        await swap.train("running", "long")
        await swap.train("suspended", "long", suspend=True)
        await swap.train("finished", "short")
        elsewhere = {"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"disk": "none"}}}
        await swap.train("unplaced", "long", podTemplateOverrides=[elsewhere])
        await why("running", (0, "running"))
        await why("suspended", (3, "suspended"))
        await why("finished", (0, "complete"))
        await why("unplaced", (1, "node-selector"))

    await swap.use([])
    await swap.admitted(swap.train_job("late", "long"))  # once the API server does not call webhooks any more
    await why("late", (1, "manager-down"))


def documented(release: str) -> list[tuple[str, str]]:
    """Return the keys of the table about going back, and how the release treats each."""
    text = (ROOT / "docs" / "migration.md").read_text()
    (table,) = re.findall(r"^\| in the Configuration \|(.*)\n\|-.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    column = [each.strip() for each in table[0].split("|")].index(release)
    rows = [[each.strip() for each in line.split("|")[1:-1]] for line in table[1].splitlines()]
    return [(re.findall(r"`([^`]+)`", row[0])[0], row[column + 1]) for row in rows]


def test_a_go_manager_treats_the_keys_of_a_configuration_as_documented(
    binary: Binary, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    release = request.node.callspec.id
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"https://127.0.0.1:{free_ports(1)[0]}"}}],
        "users": [{"name": "u", "user": {}}],
    }))  # fmt: skip
    config = tmp_path / "config.yaml"

    def treats(key: str) -> str:
        config.write_text(f"apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\n{key}\n")
        command = [str(binary.path), f"--config={config}", f"--kubeconfig={kubeconfig}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode != 0, "no API server listens"
        return "accepted" if "Creating manager" in done.stderr else "refused"

    wanted = documented(release)
    assert len(wanted) > 10
    assert [(key, treats(key)) for key, _ in wanted] == wanted
    shipped_file = ROOT / "config" / "manager" / "controller_manager_config.yaml"
    own = yaml.safe_load(shipped_file.read_text())
    assert (
        treats(yaml.safe_dump({key: own[key] for key in own.keys() - {"apiVersion", "kind"}})) == "accepted"
    )


def changed(
    before: dict[tuple[str, str], str], after: dict[tuple[str, str], str], release: Release
) -> list[tuple[str, str]]:
    """Return the objects that were written, created or deleted.

    The profile of a newer release may change runtimes and snapshots.
    """
    keys = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    if release.older:
        keys = {
            (kind, name)
            for kind, name in keys
            if kind != "ClusterTrainingRuntime" and not name.endswith("-runtime-snapshot")
        }
    return sorted(keys)
