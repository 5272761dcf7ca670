# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The manager with every feature enabled, under the roles that a cluster may have: which features stop, and where it says so.

The table in ``docs/migration.md`` has the same cells. A feature that stopped works once its rights are granted, without a
restart.
"""

import json
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from controller_runtime.apis.core.v1 import Event, Namespace, Pod, Secret
from controller_runtime.client import MERGE, LiveClient, raw_patch
from controller_runtime.envtest import Environment, EventuallyError, eventually
from controller_runtime.machinery import GVK, unstructured
from controller_runtime.machinery.errors import StatusError
from trainerctl.localcluster.manifests import TRAINER_NAMESPACE

from hack import rbac
from pkg.apis.trainer.v1alpha1 import TrainJob
from testkit import pod_owners, scenarios
from testkit.processes import answer

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(240)]

ROOT: Final = Path(__file__).parents[3]
RECORDED: Final = ROOT / "test" / "testdata" / "rbac" / "go-trainer.json"
"""The rules of the Go releases' ClusterRole: group, resource, verbs."""
CLUSTER_ROLE: Final = unstructured(GVK("rbac.authorization.k8s.io", "v1", "ClusterRole"))
DEFAULTER: Final = unstructured(GVK("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration"))
Rule = dict[str, Any]
Run = Any  # conftest's


def of_go(release: str) -> list[Rule]:
    """Return the rules of a Go release's ClusterRole."""
    rows = json.loads(RECORDED.read_text())[release]
    return [
        {"apiGroups": [group], "resources": [name], "verbs": verbs.split()} for group, name, verbs in rows
    ]


def of_ours(*without: rbac.Part) -> list[Rule]:
    """Return the rules of this project's ClusterRoles, except those of some parts.

    The role of the failure evidence is a part of that of the pod grouper, and has a test of its own.
    """
    parts = [part for part in rbac.Part if part not in (*without, rbac.Part.FAILURE_EVIDENCE)]
    return [rule for part in parts for rule in rbac.rules(rbac.collected(part), rbac.resource_names(part))]


OF_EVIDENCE: Final = [
    *of_ours(rbac.Part.POD_GROUPER),
    *rbac.rules(rbac.collected(rbac.Part.FAILURE_EVIDENCE), {}),
]

ROLES: Final[dict[str, list[Rule]]] = {
    "Go v2.1.0": of_go("v2.1.0"),
    "Go v2.3.0": of_go("v2.3.0"),
    "without `config/status-server`": of_ours(rbac.Part.STATUS_SERVER),
    "without `config/metrics-authorization`": of_ours(rbac.Part.METRICS),
    "without `config/podgrouper`": of_ours(rbac.Part.POD_GROUPER),
    "all": of_ours(),
}


async def defaulter(client: LiveClient, namespace: str, run: Run, timeout: float = 20) -> None:
    """Wait until the configuration of the mutating webhook has its authority."""
    del namespace

    async def given() -> bool:
        secret = await client.get(Secret, (TRAINER_NAMESPACE, f"cert-{run.role}"))
        hooks = (await client.get(DEFAULTER, ("", "defaulter.trainer.kubeflow.org"))).to_dict()["webhooks"]
        bundle = hooks[0]["clientConfig"].get("caBundle")
        return bool(bundle) and bundle == (secret.data or {}).get("ca.crt")

    await eventually(given, timeout=timeout, reason="the mutating webhook has the authority")


async def grouping(client: LiveClient, namespace: str, run: Run) -> None:
    """Create a pod of KAI's scheduler, and wait until it has its group."""
    await run.ready()
    pod = await pod_owners.grouped(client, namespace, ("batch", "jobs"), GVK("batch", "v1", "Job"))

    async def marked() -> bool:
        return "pod-group-name" in (await client.get(Pod, pod.key)).annotations

    await eventually(marked, timeout=20, reason="the pod has its group")


async def rebuild(client: LiveClient, namespace: str, run: Run) -> None:
    """Edit a suspended TrainJob, which stays suspended whether or not its JobSet can be deleted."""
    try:
        await scenarios.rebuild(client, namespace, run)
    finally:
        job = await client.get(TrainJob, (namespace, "edited"))
        assert job.spec.suspend
        assert any(each.type == "Suspended" and each.status == "True" for each in job.status.conditions or ())


FEATURES: Final[dict[str, scenarios.Scenario]] = {
    "TrainJobs of Torch": scenarios.torch,
    "MPI": scenarios.mpi,
    "a finalizer keeps ClusterTrainingRuntimes that TrainJobs use": scenarios.cluster_runtime,
    "gangs of scheduler-plugins": scenarios.coscheduling,
    "edits of suspended TrainJobs for which the manager must create the JobSet again": rebuild,
    "gangs of Volcano with a priority class": scenarios.volcano,
    "gangs of Kubernetes (`podGroupPolicy.workload`)": scenarios.workload,
    "the mutating webhook (`config/webhook`)": defaulter,
    "progress of TrainJobs (`TrainJobStatus`)": scenarios.status,
    "the pod grouper (`podGrouper.enable`)": grouping,
}
REBUILD, VOLCANO, WORKLOAD, WEBHOOK, PROGRESS, GROUPER = list(FEATURES)[4:]
METRICS: Final = "metrics for authorized clients (`metrics.requireAuthorization`)"
CLEANUP: Final = "deletion of finished TrainJobs (`TTLAfterFinished`)"
EVIDENCE: Final = "events about failed containers (`FailureEvidence`)"
STOPPED: Final[dict[str, set[str]]] = {
    "Go v2.1.0": {REBUILD, VOLCANO, WORKLOAD, WEBHOOK, PROGRESS, GROUPER, METRICS},
    "Go v2.3.0": {VOLCANO, WORKLOAD, PROGRESS, GROUPER, METRICS},
    "without `config/status-server`": {PROGRESS},
    "without `config/metrics-authorization`": {METRICS},
    "without `config/podgrouper`": {GROUPER},
    "all": set(),
}
"""The features that do not work under each role; all others do."""


@dataclass(frozen=True)
class Said:
    """Patterns of the reports of a stopped feature; each of them has to be found."""

    ready: str = ""
    kind: str = ""
    """The label of ``kubeflow_trainer_kind_degraded``."""
    event: str = ""
    log: str = ""


SAID: Final[dict[str, Said]] = {
    REBUILD: Said(event=r"Warning TrainJobResourcesCreationFailed .*cannot delete resource \"jobsets\""),
    VOLCANO: Said(ready=r"PriorityClass\.scheduling\.k8s\.io is degraded", kind="PriorityClass"),
    WORKLOAD: Said(
        ready=r"Workload\.scheduling\.k8s\.io is degraded",
        kind="Workload",
        event=r"Warning TrainJobResourcesCreationFailed .*workloads\.scheduling\.k8s\.io is forbidden",
    ),
    WEBHOOK: Said(log="The role does not permit reading the webhook configuration"),
    PROGRESS: Said(
        ready=r"\[\+\]status-server ok: .*forbidden", log="Client of the status server cannot be authorized"
    ),
    GROUPER: Said(ready=r"Pod is degraded", kind="Pod"),
    METRICS: Said(log=r"Authentication failed.*tokenreviews"),
    CLEANUP: Said(event=r"Warning TrainJobDeletionFailed .*the role in config/ttl-after-finished"),
    EVIDENCE: Said(
        ready=r"\[\+\]failure-evidence ok: failures of pods are not recorded: .*forbidden", kind="Pod"
    ),
}


@dataclass
class Report:
    """The places where the manager reports a stopped feature."""

    client: LiveClient
    namespace: str
    run: Run

    async def has(self, said: Said) -> bool:
        """Assert that every pattern is found."""
        _, ready = await answer(f"http://127.0.0.1:{self.run.health}/readyz?verbose")
        _, metrics = await answer(f"https://127.0.0.1:{self.run.metrics}/metrics")
        events = [each.to_dict() for each in await self.client.list(Event, namespace=self.namespace)]
        lines = "\n".join(f"{each['type']} {each['reason']} {each['message']}" for each in events)
        kind = rf'kubeflow_trainer_kind_degraded{{.*kind="{said.kind}".*}} 1' if said.kind else ""
        texts = {ready: said.ready, metrics: kind, lines: said.event, self.run.log.read_text(): said.log}
        for text, pattern in texts.items():
            assert re.search(pattern, text), (pattern, text[-2000:])
        return True


async def outcomes(client: LiveClient, namespace: str, run: Run, features: set[str]) -> dict[str, str]:
    """Use features at the same time; return the errors of those that stopped."""
    found: dict[str, str] = {}

    async def use(feature: str) -> None:
        try:
            await FEATURES[feature](client, namespace, run)
        except (EventuallyError, StatusError, AssertionError) as error:
            found[feature] = str(error)

    await run.ready()
    async with anyio.create_task_group() as tasks:
        for feature in features:
            tasks.start_soon(use, feature)
    return found


async def grant(client: LiveClient, role: str, rules: list[Rule]) -> None:
    """Replace the rules of a ClusterRole."""
    body = json.dumps({"rules": rules}).encode()
    await client.patch(CLUSTER_ROLE.from_dict({"metadata": {"name": role}}), raw_patch(MERGE, body))


def cells(feature: str) -> list[str]:
    """Return a feature's row of the table in ``docs/migration.md``, except where a stop is reported."""
    verbs = ["stops" if feature in STOPPED[role] else "works" for role in ("Go v2.1.0", "Go v2.3.0")]
    needed = [
        role for role, features in STOPPED.items() if role.startswith("without") and feature in features
    ]
    return [feature, *verbs, *([f"stops {role}" for role in needed] or ["works"])]


def test_the_guide_has_the_same_table() -> None:
    text = (ROOT / "docs" / "migration.md").read_text()
    table = text.partition("| feature | Go v2.1.0's role |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    gates = [
        [EVIDENCE, "stops", "stops", "stops without `config/failure-evidence`"],
        [CLEANUP, "stops", "stops", "stops without `config/ttl-after-finished`"],
    ]
    assert [row[:4] for row in rows] == [*(cells(feature) for feature in (*FEATURES, METRICS)), *gates]
    for feature, *_, reported in rows:
        said = SAID.get(feature, Said())
        places = {"readiness": said.ready, "metric": said.kind, "event": said.event, "log": said.log}
        assert {place for place in places if place in reported} == {each for each in places if places[each]}


@pytest.mark.parametrize("role", ROLES)
async def test_a_role_stops_the_features_that_it_lacks_rights_for_and_no_others(
    role: str, run_under: Any, audited: Environment, live_client: LiveClient, namespace: str
) -> None:
    stopped = STOPPED[role] - {METRICS}
    healed = f"{namespace}-healed"[-63:].lstrip("-")
    await audited.install_crds(*pod_owners.crds())
    await live_client.create(
        Namespace.from_dict({"metadata": {"name": healed, "labels": {"under-test": namespace}}})
    )
    # A cluster whose role does not name mutating webhooks does not have this one.
    unused = {DEFAULTER.gvk.kind} if WEBHOOK in stopped else set()
    grouper = {"enable": True, "namespaceLabelSelector": {"under-test": namespace}}
    async with run_under(
        rules=ROLES[role],
        authorized_metrics=False,
        unused_webhooks=unused,
        podGrouper=grouper,
        featureGates={"TrainJobStatus": True},
    ) as run:
        found = await outcomes(live_client, namespace, run, set(FEATURES))
        assert found.keys() == stopped, found
        report = Report(live_client, namespace, run)
        for feature in stopped:
            await eventually(partial(report.has, SAID[feature]), timeout=30, reason=feature)

        await grant(live_client, run.role, of_ours())

        async def whole() -> bool:
            _, ready = await answer(f"http://127.0.0.1:{run.health}/readyz?verbose")
            return "is degraded" not in ready

        await eventually(whole, timeout=60, reason="no kind is degraded any more")
        if WEBHOOK in stopped:  # the configuration is read again each minute
            await defaulter(live_client, healed, run, timeout=90)
        assert await outcomes(live_client, healed, run, stopped) == {}
        _, ready = await answer(f"http://127.0.0.1:{run.health}/readyz?verbose")
        assert "forbidden" not in ready
        for job in await live_client.list(TrainJob, namespace=healed):
            await live_client.delete(job)


@pytest.mark.parametrize("role", ROLES)
async def test_metrics_are_authorized_by_a_role_of_their_own(
    role: str, run_under: Any, live_client: LiveClient, namespace: str
) -> None:
    async with run_under(rules=ROLES[role]) as run:
        if METRICS not in STOPPED[role]:
            await scenarios.metrics(live_client, namespace, run)
            return
        closed = await answer(f"https://127.0.0.1:{run.metrics}/metrics", "any")
        assert closed == (500, "Authentication failed\n")
        assert re.search(SAID[METRICS].log, run.log.read_text())

        await grant(live_client, run.role, of_ours())

        async def works() -> bool:
            await scenarios.metrics(live_client, namespace, run)
            return True

        await eventually(works, timeout=30, reason="clients are authorized")


@pytest.mark.parametrize(
    ("rules", "works"),
    [
        pytest.param(of_go("v2.1.0"), False, id="Go v2.1.0"),
        pytest.param(of_go("v2.3.0"), False, id="Go v2.3.0"),
        pytest.param(of_ours(rbac.Part.POD_GROUPER), False, id="without config/failure-evidence"),
        pytest.param(OF_EVIDENCE, True, id="with config/failure-evidence"),
    ],
)
async def test_failed_containers_are_recorded_by_a_role_of_their_own(
    rules: list[Rule], works: bool, run_under: Any, live_client: LiveClient, namespace: str
) -> None:
    async with run_under(rules=rules, authorized_metrics=False) as run:
        await run.ready()
        if not works:
            report = Report(live_client, namespace, run)
            await eventually(partial(report.has, SAID[EVIDENCE]), timeout=30, reason=EVIDENCE)
            with pytest.raises(EventuallyError):
                await scenarios.failure(live_client, namespace, run, timeout=2)
            log = run.log.read_text()
            assert not re.search(r"Failed pods cannot be watched", log), log[-2000:]
            await grant(live_client, run.role, OF_EVIDENCE)

        await scenarios.failure(live_client, namespace, run, "again")

        _, ready = await answer(f"http://127.0.0.1:{run.health}/readyz?verbose")
        assert "failures of pods are not recorded" not in ready


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(of_go("v2.1.0"), id="Go v2.1.0"),
        pytest.param(of_go("v2.3.0"), id="Go v2.3.0"),
        pytest.param(of_ours(rbac.Part.TTL_AFTER_FINISHED), id="without config/ttl-after-finished"),
    ],
)
async def test_finished_train_jobs_are_deleted_by_a_role_of_their_own(
    rules: list[Rule], run_under: Any, live_client: LiveClient, namespace: str
) -> None:
    async with run_under(
        rules=rules, authorized_metrics=False, featureGates={"TTLAfterFinished": True}
    ) as run:
        await scenarios.finish(live_client, namespace, run, "finished")
        report = Report(live_client, namespace, run)
        await eventually(partial(report.has, SAID[CLEANUP]), timeout=30, reason=CLEANUP)
        assert (await live_client.get(TrainJob, (namespace, "finished"))).metadata.deletion_timestamp is None

        await grant(live_client, run.role, of_ours())

        await scenarios.is_deleted(live_client, namespace, "finished", timeout=60)
