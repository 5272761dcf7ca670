# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A manager of an earlier commit and the present one replace each other; both then write only the lease and events.

As in a rolling update, the new manager waits for the lease while the old one works, and takes it when SIGTERM ends the
old one. The objects are TrainJobs of all features and states, and pods of each kind of owner.
"""

import contextlib
import io
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
import yaml
from controller_runtime.apis.coordination.v1 import Lease
from controller_runtime.apis.core.v1 import Namespace, Pod, Secret
from controller_runtime.client import MERGE, LiveClient, raw_patch
from controller_runtime.envtest import (
    HOST,
    Binaries,
    Environment,
    apply_manifests,
    eventually,
    free_ports,
    open_crd,
)
from controller_runtime.machinery import GVK, Unstructured, unstructured
from controller_runtime.machinery.errors import ServerError
from controller_runtime.rest import Config, Request, RESTMapper, Transport, TransportError
from prometheus_client.parser import text_string_to_metric_families
from trainerctl.localcluster import manifests
from trainerctl.localcluster.access import role_binding
from trainerctl.localcluster.options import Options
from trainerctl.localcluster.tools import JOBSET, JOBSETS

from pkg import shipped
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from testkit import pod_owners
from testkit.builders import pod_override, runtime_patch
from testkit.kueue_writes import MANAGER, QUEUE, Kueue

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(180)]

FORMER: Final = "dfca04bbe9048aacf57f257c8180834cb6a0e65d"
"""The commit of the former manager. Change it to the commit of each new release. When a change deliberately writes
other objects, change it to the first commit with that change."""
ROOT: Final = Path(__file__).parents[3]
SYSTEM: Final = manifests.TRAINER_NAMESPACE
GROUP: Final = "managers"
ANNOTATION: Final = "pod-group-name"
WITHOUT_GROUP: Final = {
    "amljobs-amlarc", "cronjobs-batch", "jobsets-jobset", "podcliquesets-grove", "podgangsets-grove",
    "rayjobs-ray", "rayservices-ray", "services-serving",
}  # fmt: skip
"""Pods that get no group, because their owners lack fields or further objects; each attempt ends with an event."""
REGROUPED: Final = {"PaddleJob", "RayCronJob"}
"""Kinds of owners whose pods the former manager puts in other groups, because it has no grouper for these kinds."""
COUNT: Final = 3
"""The number of TrainJobs of each shape, for each manager."""
READS: Final = {"get", "list", "watch"}
NOT_COMPARED: Final = {"leases", "events", "componentstatuses"}
_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": [GROUP]}, {"level": "None"}],
}
Document = dict[str, Any]


def git(*arguments: str) -> bytes | None:
    """Return the output of git for this repository, or None if it fails."""
    try:
        done = subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout


@pytest.fixture(scope="module")
def former(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the files of the former manager's commit."""
    archive = git("archive", FORMER, "pkg", "config", "controller-runtime/controller_runtime")
    if archive is None:
        pytest.skip(f"the history does not contain the former manager's commit {FORMER[:8]}")
    folder = tmp_path_factory.mktemp("former")
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def audit_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit") / "audit.log"


@pytest.fixture(scope="module")
def served(audit_log: Path) -> Iterator[Environment]:
    """Yield an API server for this module, with every kind of the managers, that records their requests."""
    policy = audit_log.with_name("policy.json")
    policy.write_text(json.dumps(_POLICY))
    gangs = Options(kubernetes="1.35", workloads=True)
    flags = [
        f"--audit-policy-file={policy}",
        f"--audit-log-path={audit_log}",
        "--audit-log-mode=blocking",
        *gangs.api_server_flags,
    ]
    environment = Environment(api_server_flags=flags, version=gangs.kubernetes)

    async def start() -> None:
        await environment.start()
        binaries = await Binaries().locate(JOBSETS["0.11"])
        groups = [
            open_crd(GVK("scheduling.x-k8s.io", "v1alpha1", "PodGroup"), subresources={"status": {}}),
            open_crd(GVK("scheduling.volcano.sh", "v1beta1", "PodGroup"), subresources={"status": {}}),
        ]
        crds = manifests.crds(binaries[JOBSET.name])
        await environment.install_crds(*crds, *groups, *pod_owners.crds())
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": GROUP}
        rights = []
        for folder in ("rbac", "podgrouper", "status-server"):
            (role,) = [each for each in shipped.manifests(folder) if each["kind"] == "ClusterRole"]
            rights += [role, role_binding(role["metadata"]["name"], subject)]
        async with Transport(environment.config) as transport:
            client = LiveClient(transport, RESTMapper(transport))
            await client.create(Namespace.from_dict({"metadata": {"name": SYSTEM}}))
            secret = {"metadata": {"name": "kubeflow-trainer-webhook-cert", "namespace": SYSTEM}}
            await client.create(Secret.from_dict(secret))
            await apply_manifests(client, rights, owner="test")

    anyio.run(start)
    yield environment
    anyio.run(environment.stop)


@dataclass
class Manager:
    """A manager that runs as a process, from a folder with the files of its commit."""

    user: str
    process: subprocess.Popen[bytes]
    log: Path
    metrics: int
    health: int
    host: str
    webhook: int

    async def get(self, port: int, path: str) -> tuple[int, str]:
        """Return status and body of the answer to a GET; the status is 0 if nothing listens yet."""
        async with Transport(Config(f"http://{HOST}:{port}")) as transport:
            try:
                response = await transport.send(Request("GET", path))
            except TransportError:
                assert self.process.poll() is None, self.log.read_text()[-3000:]
                return 0, ""
            return response.status, (await response.read()).decode()

    async def ready(self) -> bool:
        return (await self.get(self.health, "/readyz"))[0] == 200

    async def series(self, name: str, **labels: str) -> float:
        """Return the sum of the samples of a metric."""
        _, text = await self.get(self.metrics, "/metrics")
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    async def is_idle(self) -> bool:
        """Return True if no request waits in a queue of the manager, and none is reconciled."""
        waiting = await self.series("workqueue_depth")
        return not waiting and not await self.series("controller_runtime_active_workers")


def launch(tree: Path, arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Start the manager of a tree with the packages of this interpreter, which are the same for both managers."""
    environ = {**os.environ, "PYTHONPATH": f"{tree}:{tree / 'controller-runtime'}"}
    script = "import controller_runtime, pkg; print(controller_runtime.__file__, pkg.__file__)"
    command = [sys.executable, "-c", script]
    imported = subprocess.run(
        command, cwd=tree, env=environ, capture_output=True, text=True, check=True
    ).stdout
    assert all(Path(each).is_relative_to(tree) for each in imported.split()), imported
    with log.open("wb") as out:
        command = [sys.executable, "-m", "pkg.app", *arguments]
        return subprocess.Popen(command, cwd=tree, env=environ, stdout=out, stderr=out)


@dataclass
class World:
    """The cluster, and the managers that replace each other."""

    environment: Environment
    client: LiveClient
    transport: Transport
    audit_log: Path
    folder: Path
    profile: str
    stack: contextlib.ExitStack
    status_port: int = field(default_factory=lambda: free_ports(1)[0])
    started: list[str] = field(default_factory=list)

    async def start(self, tree: Path, name: str) -> Manager:
        """Start the manager of a tree; return when it is ready."""
        user = f"{name}-{self.profile}"
        metrics, health, webhook = free_ports(3)
        host = f"127.0.0.{2 + len(self.started)}"
        kubeconfig, configuration = (self.folder / f"{user}.{each}" for each in ("kubeconfig", "yaml"))
        kubeconfig.write_text(yaml.safe_dump(self.environment.kubeconfig_for(user, [GROUP])))
        kubeconfig.chmod(0o600)
        said = {
            "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
            "kind": "Configuration",
            "compatibilityVersion": self.profile,
            "metrics": {"bindAddress": f"{HOST}:{metrics}", "secureServing": False},
            "health": {"healthProbeBindAddress": f"{HOST}:{health}"},
            "webhook": {"host": host, "port": webhook},
            # Pods are given the port, so both managers have the same one, at different addresses.
            "statusServer": {"host": host, "port": self.status_port},  # key of older commits
            "featureGates": {"TrainJobStatus": True},
            "leaderElection": {
                "leaderElect": True,
                "resourceName": "trainer.kubeflow.org",
                "resourceNamespace": SYSTEM,
            },
            "clientConnection": {"qps": -1},
            "podGrouper": {"enable": True},
        }
        configuration.write_text(yaml.safe_dump(said))
        log = self.folder / f"{user}.log"
        arguments = [f"--config={configuration}", f"--kubeconfig={kubeconfig}"]
        process = launch(tree, arguments, log)
        self.started.append(user)
        self.stack.callback(process.wait)
        self.stack.callback(process.kill)
        manager = Manager(user, process, log, metrics, health, host, webhook)
        await eventually(manager.ready, timeout=60, interval=0.3, reason=f"the manager {user} is ready")
        return manager

    async def serve_webhooks(self, manager: Manager) -> None:
        """Make the API server call a manager's webhooks."""
        hooks = manifests.trainer_webhooks(f"https://{manager.host}:{manager.webhook}", b"")
        await apply_manifests(self.client, hooks, owner="test")

    async def lease(self) -> Lease:
        return await self.client.get(Lease, (SYSTEM, "trainer.kubeflow.org"))

    def writes(self) -> list[str]:
        """Return the writes of managers, refused ones included, other than those of the lease and of events."""
        found = []
        for line in self.audit_log.read_text().rpartition("\n")[0].splitlines():
            entry = json.loads(line)
            ref = entry.get("objectRef", {})
            resource = ref.get("resource", "")
            if entry["verb"] in READS or resource in NOT_COMPARED or resource.startswith("selfsubject"):
                continue
            name = "/".join(filter(None, (ref.get("namespace"), ref.get("name"))))
            found.append(f"{entry['user']['username']} {entry['verb']} {resource} {name}")
        return found

    async def quiet(self, manager: Manager, seconds: float = 1.5) -> None:
        """Return when ``manager`` has had nothing to do, and has written nothing, for ``seconds``."""
        count, since = -1, time.monotonic()
        with anyio.fail_after(60):
            while time.monotonic() - since < seconds:
                # On a busy machine, a manager that still has work may write nothing for longer.
                if (now := len(self.writes())) != count or not await manager.is_idle():
                    count, since = now, time.monotonic()
                await anyio.sleep(0.2)

    async def stored(self) -> dict[str, str]:
        """Return UID and resource version of every object, for each kind that the API server lists."""
        found: dict[str, str] = {}
        groups = (await self._read("/apis"))["groups"]
        versions = [f"/apis/{each['groupVersion']}" for group in groups for each in group["versions"]]
        kinds = {
            (path.split("/")[2], resource["name"]): f"{path}/{resource['name']}"
            for path in ("/api/v1", *versions)
            for resource in (await self._read(path))["resources"]
            if "list" in resource["verbs"] and resource["name"] not in NOT_COMPARED
        }
        for path in kinds.values():
            for each in (await self._read(path))["items"] or ():
                metadata = each["metadata"]
                key = "/".join((path, metadata.get("namespace", ""), metadata["name"]))
                found[key] = f"{metadata['uid']} {metadata['resourceVersion']}"
        return found

    async def _read(self, path: str) -> Any:
        accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
        response = await self.transport.send(Request("GET", path, headers={"Accept": accept}))
        body = await response.read()
        assert response.status == 200, (path, body[:300])
        return json.loads(body)

    async def create(self, kind: str, name: str, namespace: str, spec: Document, **metadata: Any) -> None:
        data = {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": kind,
            "metadata": {"name": name, "namespace": namespace, **metadata},
            "spec": spec,
        }
        await self.client.create(Unstructured.wrap(data))


@pytest.fixture(params=["2.1", "2.3"])
async def world(
    served: Environment, audit_log: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[World]:
    async with Transport(served.config) as transport:
        client = LiveClient(transport, RESTMapper(transport))
        with contextlib.ExitStack() as stack:
            yield World(served, client, transport, audit_log, tmp_path, request.param, stack)
        # The managers of the other profile would reconcile their objects.
        for namespace in [each.name for each in await client.list(Namespace) if each.name.startswith("by-")]:
            for kind in (TrainJob, JobSet, Pod):
                await client.delete_all_of(kind, namespace=namespace)


def runtime(*names: str, **policies: Any) -> Document:
    """Return the spec of a runtime with these jobs, of which the first one trains."""
    jobs: list[Document] = []
    for name in names or ("node",):
        pod = {
            "containers": [{"name": "node", "image": "busybox"}],
            "priorityClassName": "system-node-critical",
        }
        labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"} if not jobs else {}
        template = {"metadata": {"labels": labels}, "spec": {"template": {"spec": pod}}}
        jobs.append({"name": name, "template": template})
    return {"template": {"spec": {"replicatedJobs": jobs}}, **policies}


RUNTIMES: Final = {
    "torch": runtime(mlPolicy={"numNodes": 2, "torch": {"numProcPerNode": "auto"}}),
    "mpi": runtime("launcher", "node", mlPolicy={"numNodes": 2, "mpi": {"runLauncherAsNode": True}}),
    "coscheduling": runtime(podGroupPolicy={"coscheduling": {"scheduleTimeoutSeconds": 20}}),
    "volcano": runtime(podGroupPolicy={"volcano": {}}),
    "workload": runtime(podGroupPolicy={"workload": {}}),
}
TOLERATIONS: Final = [{"key": "any", "operator": "Exists"}]
FIRST: Final[Document] = {
    "podTemplateOverrides": [pod_override({"tolerations": TOLERATIONS})],
    "labels": {"a": "b"},
    "annotations": {"c": "d"},
}
SECOND: Final[Document] = {
    "runtimePatches": [runtime_patch("example.com/user", {"tolerations": TOLERATIONS})],
    "activeDeadlineSeconds": 3600,
}
_KUEUE: Final = {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {}}}}
TRAINER: Final = {
    "image": "other",
    "numNodes": 3,
    "numProcPerNode": "2",
    "command": ["train"],
    "env": [{"name": "A", "value": "b"}],
    "resourcesPerNode": {"limits": {"cpu": "2"}},
}


@dataclass(frozen=True)
class Shape:
    """The runtime and the spec of TrainJobs, and their state before the swap."""

    runtime: str = "torch"
    spec: Document = field(default_factory=dict)
    fate: str = "runs"
    kueue: int = 0


SHAPES: Final[dict[str, Shape]] = {
    "plain": Shape(),
    "suspended": Shape(spec={"suspend": True}),
    "trainer-suspended": Shape(spec={"suspend": True, "trainer": TRAINER}),
    "resumed": Shape(spec={"suspend": True}, fate="resumes"),
    "paused": Shape(spec={"trainer": TRAINER}, fate="pauses"),
    "complete": Shape(fate="Completed"),
    "failed": Shape(fate="Failed"),
    "expired": Shape(fate="Completed, and loses its JobSet"),
    "trainer": Shape(spec={"trainer": TRAINER}),
    "first": Shape(spec=FIRST),
    "second": Shape(spec=SECOND),
    "first-done": Shape(spec=FIRST, fate="Completed"),
    "second-paused": Shape(spec=SECOND, fate="pauses"),
    "both": Shape(spec={**FIRST, **SECOND}),
    "mpi": Shape("mpi"),
    "mpi-suspended": Shape("mpi", {"suspend": True, "trainer": TRAINER}),
    "gang": Shape("coscheduling"),
    "gang-suspended": Shape("coscheduling", {"suspend": True}),
    "volcano": Shape("volcano"),
    "volcano-failed": Shape("volcano", fate="Failed"),
    "workload": Shape("workload"),
    "workload-suspended": Shape("workload", {"suspend": True}),
    "kueue-first": Shape(spec={"suspend": True}, kueue=1),
    "kueue-second": Shape(spec={"suspend": True, "runtimePatches": [_KUEUE]}, kueue=2),
    "elsewhere": Shape(spec={"managedBy": "kueue.x-k8s.io/multikueue"}, fate="is left alone"),
}


class Loaded:
    """Creates TrainJobs and pods, which one manager brings to their states."""

    def __init__(self, world: World, namespace: str) -> None:
        self._world = world
        self._client = world.client
        self._namespace = namespace
        self._jobs = {f"{name}-{n}": shape for name, shape in SHAPES.items() for n in range(COUNT)}

    async def load(self) -> None:
        """Create everything, and return when each object is in its state."""
        await self._client.create(Namespace.from_dict({"metadata": {"name": self._namespace}}))
        for name, spec in RUNTIMES.items():
            await self._admitted("TrainingRuntime", name, spec)
            await self._admitted("ClusterTrainingRuntime", f"{self._namespace}-{name}", spec)
        async with anyio.create_task_group() as tasks:
            for name, shape in self._jobs.items():
                tasks.start_soon(self._life, name, shape)
            tasks.start_soon(self._pods)
        await eventually(self._settled, timeout=60, reason="each TrainJob has its conditions")
        # The manager of FORMER completes some groups only when their pod changes again.
        for pod in await self._client.list(Pod, namespace=self._namespace):
            await self._client.patch(pod, raw_patch(MERGE, b'{"metadata":{"labels":{"touched":"yes"}}}'))

    async def _admitted(self, kind: str, name: str, spec: Document) -> None:
        async def created() -> bool:
            namespace = self._namespace if kind == "TrainingRuntime" else ""
            with contextlib.suppress(ServerError):  # the webhook's authority is not known yet
                await self._world.create(kind, name, namespace, spec)
                return True
            return False

        await eventually(created, timeout=30, reason=f"{kind} {name} is admitted")

    async def _life(self, name: str, shape: Shape) -> None:
        # Every other TrainJob has a runtime of its namespace.
        own = int(name.rpartition("-")[2]) % 2
        ref = {"name": shape.runtime, "kind": "TrainingRuntime"}
        if not own:
            ref = {"name": f"{self._namespace}-{shape.runtime}"}
        metadata = {"labels": {QUEUE: "queue"}} if shape.kueue else {}
        await self._world.create(
            "TrainJob", name, self._namespace, {"runtimeRef": ref, **shape.spec}, **metadata
        )
        if shape.fate == "is left alone":
            return
        key = (self._namespace, name)
        job_set = await eventually(
            lambda: self._client.get(JobSet, key), timeout=60, interval=0.3, reason=f"{name} has its JobSet"
        )
        if shape.kueue:
            await Kueue(self._client, self._namespace, shape.kueue).start(name, ["node"], "big")
        if shape.fate == "resumes":
            await self._suspend(name, wanted=False)
        if shape.spec.get("suspend") and not shape.kueue and shape.fate == "runs":
            return
        await eventually(lambda: self._runs(name), timeout=60, interval=0.3, reason=f"{name} runs")
        await self._report(name, {"active": 1, "ready": 1})
        if shape.fate == "pauses":
            await self._suspend(name, wanted=True)
            await eventually(
                lambda: self._runs(name, wanted=False),
                timeout=60,
                interval=0.3,
                reason=f"{name} is suspended",
            )
            await self._report(name, {"suspended": 1})
        if shape.fate.startswith(("Completed", "Failed")):
            kind = shape.fate.partition(",")[0]
            key_of_count = {"Completed": "succeeded", "Failed": "failed"}[kind]
            await self._report(name, {key_of_count: 1}, condition=kind)
        if shape.fate.endswith("JobSet"):
            await eventually(
                lambda: self._has(name, "Complete"), timeout=60, interval=0.3, reason=f"{name} is complete"
            )
            await self._client.delete(job_set)

    async def _suspend(self, name: str, *, wanted: bool) -> None:
        job = await self._client.get(TrainJob, (self._namespace, name))
        await self._client.patch(job, raw_patch(MERGE, json.dumps({"spec": {"suspend": wanted}}).encode()))

    async def _runs(self, name: str, *, wanted: bool = True) -> bool:
        spec = (await self._client.get(JobSet, (self._namespace, name))).to_dict()["spec"]
        return bool(spec.get("suspend")) is not wanted

    async def _report(self, name: str, counts: dict[str, int], *, condition: str = "") -> None:
        """Write the status of a JobSet as JobSet's controller does."""
        job_set = await self._client.get(JobSet, (self._namespace, name))
        zero = dict.fromkeys(("ready", "succeeded", "failed", "active", "suspended"), 0)
        jobs = [each["name"] for each in job_set.to_dict()["spec"]["replicatedJobs"]]
        status: Document = {
            "restarts": 0,
            "replicatedJobsStatus": [{"name": each, **zero, **counts} for each in jobs],
        }
        if condition:
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            said = {
                "reason": "AllJobsCompleted" if condition == "Completed" else "FailedJobs",
                "message": "m",
            }
            status["conditions"] = [{"type": condition, "status": "True", "lastTransitionTime": now, **said}]
            status["terminalState"] = condition
        body = json.dumps({"status": status}).encode()
        await self._client.status.patch(job_set, raw_patch(MERGE, body))

    async def _has(self, name: str, condition: str) -> bool:
        job = await self._client.get(TrainJob, (self._namespace, name))
        return any(each.type == condition and each.status == "True" for each in job.status.conditions or ())

    async def _settled(self) -> bool:
        for name, shape in self._jobs.items():
            suspended = shape.fate == "pauses" or (shape.spec.get("suspend") and shape.fate == "runs")
            if shape.fate.startswith("Completed"):
                assert await self._has(name, "Complete"), name
            elif shape.fate == "Failed":
                assert await self._has(name, "Failed"), name
            elif suspended and not shape.kueue:
                assert await self._has(name, "Suspended"), name
        pods = await self._client.list(Pod, namespace=self._namespace)
        missing = {each.name for each in pods if ANNOTATION not in each.annotations}
        assert missing <= WITHOUT_GROUP, missing
        return True

    async def _pods(self) -> None:
        """Create a pod of each kind of owner."""
        priority = unstructured(GVK("scheduling.k8s.io", "v1", "PriorityClass"))
        named = f"p-{self._namespace}"[:60].strip("-")
        await self._client.create(priority.from_dict({"metadata": {"name": named}, "value": 1}))
        for key, gvk in pod_owners.owners().items():
            if gvk.kind not in {"TrainJob", *REGROUPED}:
                await pod_owners.grouped(self._client, self._namespace, key, gvk)


async def replaced(world: World, old: Manager, tree: Path, name: str) -> Manager:
    """Replace a manager by that of another tree; check that nothing but the lease and events is written."""
    await world.quiet(old)
    before, written, lease = await world.stored(), len(world.writes()), await world.lease()
    new = await world.start(tree, name)

    began = time.monotonic()
    old.process.terminate()
    code = await anyio.to_thread.run_sync(old.process.wait)
    assert code == 0, old.log.read_text()[-3000:]

    async def taken() -> Lease | None:
        found = await world.lease()
        holder = found.spec.holder_identity
        return found if holder and holder != lease.spec.holder_identity else None

    passed = await eventually(taken, timeout=30, interval=0.05, reason="the new manager has the lease")
    took = time.monotonic() - began
    assert passed.spec.lease_transitions == (lease.spec.lease_transitions or 0) + 1
    # After SIGTERM the old manager releases the lease, and the new one tries to acquire it every 2 s.
    assert took < 10, f"the lease passed after {took:.1f} s"

    expected = {
        "trainjob_controller": len(await world.client.list(TrainJob)),
        "pod": len(await world.client.list(Pod)),
    }

    async def done() -> bool:
        for controller, count in expected.items():
            seen = await new.series("controller_runtime_reconcile_total", controller=controller)
            assert seen >= count, (controller, seen, count)
        return await new.is_idle()

    await eventually(done, timeout=60, reason="the new manager has reconciled every object")
    await anyio.sleep(1)
    after = await world.stored()
    changed = {
        key: (before.get(key), after.get(key)) for key in before | after if before.get(key) != after.get(key)
    }
    assert (world.writes()[written:], changed) == ([], {})
    assert sum(expected.values()) >= 100
    sys.stdout.write(
        f"{old.user} to {new.user}: {len(before)} objects, the lease passed after {took:.1f} s\n"
    )
    return new


async def test_managers_of_two_commits_replace_each_other_and_write_only_the_lease(
    former: Path, world: World
) -> None:
    theirs, ours = (f"by-{name}-{world.profile.replace('.', '-')}" for name in ("former", "present"))
    old = await world.start(former, "former")
    await world.serve_webhooks(old)
    await Loaded(world, theirs).load()
    new = await replaced(world, old, ROOT, "present")

    await world.serve_webhooks(new)
    await Loaded(world, ours).load()
    await replaced(world, new, former, "former-again")
