# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The role grants only what the manager requests, by the API server's audit log."""

import contextlib
from typing import Any, Final

import anyio
import pytest
from controller_runtime.client import LiveClient
from controller_runtime.envtest import EventuallyError, eventually

from hack import rbac
from testkit.scenarios import SCENARIOS, torch

pytestmark = pytest.mark.integration

TRAINER: Final = "trainer.kubeflow.org"
HOOKS: Final = "admissionregistration.k8s.io"
READ: Final = ("get", "list", "watch")


def grants(group: str, resource: str, *verbs: str) -> set[rbac.Grant]:
    return {(group, resource, verb) for verb in verbs}


USED: Final[dict[str, set[rbac.Grant]]] = {
    "start": {
        *grants(TRAINER, "trainjobs", "list", "watch"),
        *grants(TRAINER, "trainingruntimes", "list", "watch"),
        *grants(TRAINER, "clustertrainingruntimes", "list", "watch"),
        *grants("jobset.x-k8s.io", "jobsets", "list", "watch"),
        *grants("coordination.k8s.io", "leases", "get", "create", "update"),
        *grants("", "secrets", *READ, "update"),
        *grants(HOOKS, "validatingwebhookconfigurations", *READ, "update"),
        *grants(HOOKS, "mutatingwebhookconfigurations", *READ, "update"),
        *grants("", "events", "create"),
        *grants("", "pods", "list", "watch"),
    },
    "torch": {
        *grants("jobset.x-k8s.io", "jobsets", "create", "patch"),
        *grants(TRAINER, "trainjobs/status", "patch"),
        *grants(TRAINER, "trainingruntimes", "patch"),
        *grants("", "events", "patch"),
    },
    "rebuild": grants("jobset.x-k8s.io", "jobsets", "delete"),
    "cluster_runtime": grants(TRAINER, "clustertrainingruntimes", "patch"),
    "mpi": {
        *grants("", "secrets", "create", "patch"),
        *grants("", "configmaps", "create", "patch", "list", "watch"),
    },
    "coscheduling": {
        *grants("scheduling.x-k8s.io", "podgroups", "create", "patch", "list", "watch"),
        *grants("", "limitranges", "list", "watch"),
        *grants("node.k8s.io", "runtimeclasses", "list", "watch"),
    },
    "volcano": {
        *grants("scheduling.volcano.sh", "podgroups", "create", "patch", "list", "watch"),
        *grants("scheduling.k8s.io", "priorityclasses", "list", "watch"),
    },
    "workload": grants("scheduling.k8s.io", "workloads", "create", "delete", "list", "patch", "watch"),
    "status": {
        *grants("", "pods", "get"),
        *grants("batch", "jobs", "get"),
        *grants("", "/.well-known/openid-configuration", "get"),
        *grants("", "/openid/v1/jwks", "get"),
    },
    "metrics": {
        *grants("authentication.k8s.io", "tokenreviews", "create"),
        *grants("authorization.k8s.io", "subjectaccessreviews", "create"),
    },
}
"""Requests of each scenario that earlier scenarios did not send."""

ADMISSION: Final = grants(TRAINER, "trainjobs/finalizers", "update")
"""Permissions that the API server checks for us when a child blocks the deletion of its TrainJob; not in the audit log."""

ROLLBACK: Final = {
    *grants("", "configmaps", "get", "update"),
    *grants("", "events", "update", "watch"),
    *grants("", "limitranges", "get"),
    *grants("coordination.k8s.io", "leases", "list"),
    *grants("jobset.x-k8s.io", "jobsets", "get", "update"),
    *grants("node.k8s.io", "runtimeclasses", "get"),
    *grants("scheduling.volcano.sh", "podgroups", "get", "update"),
    *grants("scheduling.x-k8s.io", "podgroups", "get", "update"),
    *grants(TRAINER, "clustertrainingruntimes", "get", "update"),
    *grants(TRAINER, "clustertrainingruntimes/finalizers", "get", "patch", "update"),
    *grants(TRAINER, "trainingruntimes", "get", "update"),
    *grants(TRAINER, "trainingruntimes/finalizers", "get", "patch", "update"),
    *grants(TRAINER, "trainjobs", "get", "patch", "update"),
    *grants(TRAINER, "trainjobs/finalizers", "get", "patch"),
    *grants(TRAINER, "trainjobs/status", "get", "update"),
}
"""Permissions that the Go manager uses and ours does not. The Go manager also lists every webhook configuration, so its own
role must be applied before its image."""

OTHER_RELEASES: Final = {
    *grants("scheduling.k8s.io", "podgroups", "create", "delete", "get", "list", "patch", "watch"),
    *grants("scheduling.k8s.io", "workloads", "get"),
}
"""Permissions for newer releases of Kubernetes, where a gang is a PodGroup, and for a read after a lost answer."""


def test_every_grant_has_a_use_or_a_reason() -> None:
    used = set().union(*USED.values())
    assert not used & (ADMISSION | ROLLBACK)
    assert not ADMISSION & ROLLBACK
    wanted = used | ADMISSION | ROLLBACK | OTHER_RELEASES
    elsewhere = {rbac.Part.POD_GROUPER, rbac.Part.TTL_AFTER_FINISHED}  # test_rights tests the latter
    parts = [part for part in rbac.Part if part not in elsewhere]
    assert set().union(*map(rbac.collected, parts)) == wanted


@pytest.mark.timeout(180)
async def test_each_scenario_asks_for_what_it_is_granted_and_is_refused_nothing(
    run_under: Any, live_client: LiveClient, namespace: str
) -> None:
    async with run_under() as run:
        for name, scenario in SCENARIOS.items():
            await scenario(live_client, namespace, run)
            wanted = USED[name]

            def all_asked(wanted: set[rbac.Grant] = wanted) -> bool:
                missing = wanted - run.asked().granted
                assert not missing
                return True

            await eventually(all_asked, timeout=30, reason=name)
        asked = run.asked()
        assert not asked.refused
        known = {each for each in asked.granted if not each[1].startswith("selfsubject")}
        assert known <= set().union(*USED.values()), "requested, although listed as unused"


async def test_a_child_cannot_block_its_owners_deletion_without_the_right_to_its_finalizers(
    run_under: Any, live_client: LiveClient, namespace: str
) -> None:
    async with run_under(without=ADMISSION) as run, anyio.create_task_group() as tasks:

        async def attempt() -> None:
            with contextlib.suppress(EventuallyError):
                await torch(live_client, namespace, run)

        tasks.start_soon(attempt)
        wanted = ("jobset.x-k8s.io", "jobsets", "patch")
        await eventually(lambda: wanted in run.asked().refused, timeout=60, reason="no JobSet may be made")
        tasks.cancel_scope.cancel()
