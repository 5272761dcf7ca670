# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Counts what a TrainJob costs the API server from its creation to Complete, by verb and resource, and the manager's CPU.

A manager runs as a process against a real API server whose audit log is the count; this script plays the
JobSet controller. Allowed are one apply for each wanted form of each child and one status patch for each change of
status, and nothing else a job; the exit code is 1 if there was more::

    python test/bench/requests.py --jobs 100
    python test/bench/requests.py --kubernetes 1.37   # a release with gangs of its own: those, too
    python test/bench/requests.py --manager 'trainer-go --config {config}'   # another manager; it reads KUBECONFIG
"""

# ruff: noqa: T201 what it prints is its result
from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
if (
    __name__ == "__main__"
):  # as a script, from wherever: this folder has names that the standard library's users know
    sys.path[0] = str(ROOT)

import anyio  # noqa: E402 after the path is set
import psutil  # noqa: E402
import yaml  # noqa: E402
from controller_runtime.apis.core.v1 import Namespace  # noqa: E402
from controller_runtime.apis.machinery.conditions import is_true  # noqa: E402
from controller_runtime.apis.machinery.object import ObjectMeta  # noqa: E402
from controller_runtime.client import MERGE, LiveClient, raw_patch  # noqa: E402
from controller_runtime.envtest import Binaries, Environment, apply_manifests, eventually, open_crd  # noqa: E402
from controller_runtime.envtest.files import private_directory  # noqa: E402
from controller_runtime.envtest.ports import free_ports  # noqa: E402
from controller_runtime.rest import RESTMapper, Transport  # noqa: E402

from pkg.apis.jobset.v1alpha2 import JobSet  # noqa: E402
from pkg.apis.schedulerplugins.v1alpha1 import PodGroup  # noqa: E402
from pkg.apis.trainer.v1alpha1 import TrainingRuntime, TrainJob  # noqa: E402
from pkg.localcluster import contents  # noqa: E402
from pkg.localcluster.access import role_binding  # noqa: E402
from pkg.localcluster.options import Options  # noqa: E402
from pkg.localcluster.tools import DEFAULT_JOBSET, DEFAULT_KUBERNETES, JOBSETS, KUBERNETES_RELEASES  # noqa: E402
from pkg.offline import shipped  # noqa: E402

USER: Final = "manager-under-bench"
_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata", "users": [USER]}, {"level": "None"}],
}
_TIMEOUT: Final = 300.0


@dataclass(frozen=True)
class Workload:
    """TrainJobs of one kind, and what each may cost."""

    name: str
    spec: dict[str, Any] = field(default_factory=dict)
    jobs: Sequence[str] = ("node",)
    suspended: bool = False
    allowed: dict[str, int] = field(default_factory=dict)


JOB_SETS: Final = {"1.35": "0.11", "1.36": "0.12", "1.37": "0.12"}
"""The oldest release of JobSet for the gangs of each release of Kubernetes."""
GANG_KINDS: Final = {"1.35": "workloads"}
STATUS: Final = "patch trainjobs/status"
WORKLOADS: Final = (
    Workload("torch", {"mlPolicy": {"torch": {}}}, allowed={"patch jobsets": 1, STATUS: 2}),
    Workload(
        "suspended",
        {"mlPolicy": {"torch": {}}},
        suspended=True,
        allowed={"patch jobsets": 2, STATUS: 4},  # wanted suspended, wanted running; the same two reported
    ),
    Workload(
        "coscheduling",
        {"mlPolicy": {"torch": {}}, "podGroupPolicy": {"coscheduling": {}}},
        allowed={"patch jobsets": 1, "patch podgroups": 1, STATUS: 2},
    ),
    Workload(
        "mpi",
        {"mlPolicy": {"mpi": {"runLauncherAsNode": True}}},
        jobs=("launcher", "node"),
        allowed={"patch jobsets": 1, "patch secrets": 1, "patch configmaps": 1, STATUS: 2},
    ),
)


def workloads(kubernetes: str) -> tuple[Workload, ...]:
    """Return the workloads on a release of Kubernetes; its own gangs are measured beside coscheduling."""
    if kubernetes not in JOB_SETS:
        return WORKLOADS
    gang = f"patch {GANG_KINDS.get(kubernetes, 'podgroups')}"
    spec: dict[str, Any] = {"mlPolicy": {"torch": {}}, "podGroupPolicy": {"workload": {}}}
    return (*WORKLOADS, Workload("workload", spec, allowed={"patch jobsets": 1, gang: 1, STATUS: 2}))


class Bench:
    """One API server, one manager, and the audit log between them."""

    def __init__(
        self, environment: Environment, client: LiveClient, audit: Path, jobs: int, job_set: str
    ) -> None:
        self._job_set = JOBSETS[job_set]
        self._environment = environment
        self._client = client
        self._audit = audit
        self._jobs = jobs
        self.cpu: Callable[[], float] = lambda: 0.0
        """Returns the CPU seconds of the manager until now; raises once it has ended by itself."""

    async def install(self) -> None:
        """Make what the manager needs: kinds, its shipped role, its namespace."""
        jobset = (await Binaries().locate(self._job_set))[self._job_set.name]
        await self._environment.install_crds(*contents.crds(jobset), open_crd(PodGroup.gvk))
        (role,) = [each for each in shipped.manifests("rbac") if each["kind"] == "ClusterRole"]
        user = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": USER}
        binding = role_binding(role["metadata"]["name"], user)
        await apply_manifests(self._client, [role, binding], owner="bench")
        await self._client.create(Namespace(metadata=ObjectMeta(name=contents.TRAINER_NAMESPACE)))

    async def run(self, workload: Workload, number: int) -> tuple[Counter[str], float]:
        """Take the workload's TrainJobs from create to Complete; return the manager's requests and CPU seconds."""
        namespace = f"{workload.name}-{number}"
        await self._client.create(Namespace(metadata=ObjectMeta(name=namespace)))
        await self._client.create(_runtime(workload, namespace))
        begin, cpu = self._audit.stat().st_size, self.cpu()
        ref = {"runtimeRef": {"kind": "TrainingRuntime", "name": workload.name}, "trainer": {"numNodes": 2}}
        await self._each(
            lambda name: self._client.create(_train_job(namespace, name, ref, workload.suspended))
        )
        job_sets = await self._wait(JobSet, namespace, lambda _: True)
        if workload.suspended:
            found = await self._wait(
                TrainJob, namespace, lambda job: is_true(job.status.conditions, "Suspended")
            )
            resume = raw_patch(MERGE, b'{"spec":{"suspend":false}}')
            await self._each(lambda name: self._client.patch(found[name], resume))
            job_sets = await self._wait(JobSet, namespace, lambda job_set: not job_set.spec.suspend)
            await self._wait(TrainJob, namespace, lambda job: not is_true(job.status.conditions, "Suspended"))
        await self._tell_all(workload, namespace, job_sets, {"active": 1})
        await self._tell_all(workload, namespace, job_sets, {"succeeded": 1}, condition="Completed")
        await self._wait(TrainJob, namespace, lambda job: is_true(job.status.conditions, "Complete"))
        await anyio.sleep(2)  # whatever is still to come
        return self._requests(begin, namespace), self.cpu() - cpu

    async def _tell_all(
        self,
        workload: Workload,
        namespace: str,
        job_sets: dict[str, Any],
        counts: dict[str, int],
        *,
        condition: str | None = None,
    ) -> None:
        """Write every JobSet's status, and wait until every TrainJob counts the same."""
        status = raw_patch(MERGE, _jobset_status(workload.jobs, condition, counts))
        await self._each(lambda name: self._client.status.patch(job_sets[name], status))
        await self._wait(TrainJob, namespace, lambda job: _counts(job, counts))

    async def _each(self, step: Callable[[str], Awaitable[Any]]) -> None:
        limiter = anyio.Semaphore(16)

        async def limited(name: str) -> None:
            async with limiter:
                await step(name)

        async with anyio.create_task_group() as tasks:
            for number in range(self._jobs):
                tasks.start_soon(limited, f"job-{number}")

    async def _wait(self, kind: Any, namespace: str, done: Callable[[Any], bool]) -> dict[str, Any]:
        async def reached() -> dict[str, Any] | None:
            self.cpu()
            found = {
                each.name: each for each in await self._client.list(kind, namespace=namespace) if done(each)
            }
            return found if len(found) == self._jobs else None

        reason = f"every {kind.__name__} of {namespace} is there"
        return await eventually(reached, timeout=_TIMEOUT, interval=0.3, reason=reason)

    def _requests(self, begin: int, namespace: str) -> Counter[str]:
        """Count what the audit log holds beyond ``begin``; reads of whole kinds are the cache's and counted apart."""
        counted: Counter[str] = Counter()
        with self._audit.open("rb") as log:
            log.seek(begin)
            for line in log:
                entry = json.loads(line)
                target = entry.get("objectRef") or {}
                what = target.get("resource", entry.get("requestURI", ""))
                what += f"/{target['subresource']}" if target.get("subresource") else ""
                verb = entry["verb"]
                if verb in {"list", "watch"} or target.get("namespace") != namespace or "runtimes" in what:
                    verb = f"(not by job) {verb}"
                code = (entry.get("responseStatus") or {}).get("code", 0)
                counted[f"{verb} {what}{f' -> {code}' if code >= 400 else ''}"] += 1
        return counted


def _runtime(workload: Workload, namespace: str) -> TrainingRuntime:
    container = {"name": "node", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    template = {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }
    jobs = [{"name": name, "template": template} for name in workload.jobs]
    spec = {**workload.spec, "template": {"spec": {"replicatedJobs": jobs}}}
    metadata = {"name": workload.name, "namespace": namespace}
    return TrainingRuntime.from_dict({"metadata": metadata, "spec": spec})


def _train_job(namespace: str, name: str, spec: dict[str, Any], suspend: bool) -> TrainJob:
    metadata = {"name": name, "namespace": namespace}
    return TrainJob.from_dict({"metadata": metadata, "spec": {**spec, "suspend": suspend}})


def _jobset_status(jobs: Sequence[str], condition: str | None, counts: dict[str, int]) -> bytes:
    none = {"ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0}
    status: dict[str, Any] = {"replicatedJobsStatus": [{"name": name, **none, **counts} for name in jobs]}
    if condition is not None:
        reported = {"reason": "Bench", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        status["conditions"] = [{"type": condition, "status": "True", **reported}]
    return json.dumps({"status": status}).encode()


def _counts(job: TrainJob, counts: dict[str, int]) -> bool:
    found = [each.to_dict() for each in job.status.jobs_status or ()]
    return bool(found) and all(each.get(key) == value for each in found for key, value in counts.items())


@contextmanager
def manager(command: str, environment: Environment, directory: Path) -> Iterator[Callable[[], float]]:
    """Run a manager under the shipped role; gives the function that returns its CPU seconds."""
    certificates = directory / "k8s-webhook-server" / "serving-certs"
    environment.control_plane.authority.server("webhooks", ["127.0.0.1"]).write(
        private_directory(certificates)
    )
    (port,) = free_ports(1)
    kubeconfig, config = directory / "kubeconfig", directory / "config.yaml"
    kubeconfig.write_text(yaml.safe_dump(environment.kubeconfig_for(USER)))
    kubeconfig.chmod(0o600)
    settings = {
        "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
        "kind": "Configuration",
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": "0"},
        "leaderElection": {"leaderElect": False},
        "certManagement": {"enable": False},
        "webhook": {"host": "127.0.0.1", "port": port},
        "clientConnection": {"qps": -1},
    }
    config.write_text(yaml.safe_dump(settings))
    argv = shlex.split(command.format(config=config))
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environ = {**os.environ, "KUBECONFIG": str(kubeconfig), "TMPDIR": str(directory), "PYTHONPATH": path}
    with (directory / "manager.log").open("wb") as log:
        process = subprocess.Popen(argv, env=environ, stdout=log, stderr=log)

    def cpu() -> float:
        if process.poll() is not None:
            reported = (directory / "manager.log").read_text(errors="replace")
            raise SystemExit(f"the manager ended with code {process.returncode}:\n{reported[-2000:]}")
        times = psutil.Process(process.pid).cpu_times()
        return times.user + times.system

    try:
        yield cpu
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def excess(workload: Workload, counted: Counter[str], jobs: int) -> list[str]:
    """Return what went beyond what the workload may cost."""
    return [
        f"{what}: {count} for {jobs} jobs, allowed are {workload.allowed.get(what, 0)} a job"
        for what, count in counted.items()
        if not what.startswith("(") and count > workload.allowed.get(what, 0) * jobs
    ]


async def bench(arguments: argparse.Namespace, directory: Path) -> int:
    """Run the workloads and print what each job cost; return the exit code."""
    audit, policy = directory / "audit.log", directory / "policy.json"
    policy.write_text(json.dumps(_POLICY))
    flags = [f"--audit-policy-file={policy}", f"--audit-log-path={audit}", "--audit-log-mode=blocking"]
    results, found = {}, []
    release = arguments.kubernetes
    options = Options(kubernetes=release, workloads=release in JOB_SETS)
    flags += options.api_server_flags
    job_set = JOB_SETS.get(release, DEFAULT_JOBSET)
    async with (
        Environment(version=release, api_server_flags=flags) as environment,
        Transport(environment.config) as transport,
    ):
        client = LiveClient(transport, RESTMapper(transport))
        runs = Bench(environment, client, audit, arguments.jobs, job_set)
        await runs.install()
        with manager(arguments.manager, environment, directory) as runs.cpu:
            for number, workload in enumerate(workloads(release) * arguments.rounds):
                counted, cpu = await runs.run(workload, number)
                results[workload.name] = {what: count / arguments.jobs for what, count in counted.items()}
                beyond = excess(workload, counted, arguments.jobs)
                found += beyond
                _show(workload, counted, arguments.jobs, beyond, cpu)
    if arguments.json is not None:
        arguments.json.write_text(
            json.dumps({"jobs": arguments.jobs, "requestsPerJob": results}, indent=2) + "\n"
        )
    return 1 if found else 0


def _show(workload: Workload, counted: Counter[str], jobs: int, beyond: Sequence[str], cpu: float) -> None:
    by_job = {what: count for what, count in counted.items() if not what.startswith("(")}
    print(
        f"{workload.name}: {sum(by_job.values()) / jobs:.2f} requests and {1000 * cpu / jobs:.2f} ms of CPU a job ({jobs} jobs)"
    )
    for what, count in sorted(by_job.items()):
        print(f"  {what:28} {count / jobs:6.2f}   allowed {workload.allowed.get(what, 0)}")
    for what, count in sorted(counted.items() - by_job.items()):
        print(f"  {what:44} {count} in all")
    for line in beyond:
        print(f"  TOO MUCH: {line}")


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    ours = f"{shlex.quote(sys.executable)} -P -m pkg.app --config={{config}}"
    parser.add_argument("--jobs", type=int, default=100, help="TrainJobs of each kind (100)")
    parser.add_argument("--rounds", type=int, default=1, help="rounds of all kinds (1)")
    parser.add_argument(
        "--kubernetes",
        choices=KUBERNETES_RELEASES,
        default=DEFAULT_KUBERNETES,
        help=f"release of Kubernetes; its own gangs are measured if it has them ({DEFAULT_KUBERNETES})",
    )
    parser.add_argument(
        "--manager", default=ours, metavar="CMD", help="the manager to count; {config} is its file"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-requests-") as directory:
        return anyio.run(bench, arguments, Path(directory))


if __name__ == "__main__":
    sys.exit(main())
