# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The snapshot of a TrainJob: related objects, missing references, and kinds without permission to read them."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from controller_runtime.client import interceptor
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Object, Unstructured
from controller_runtime.machinery.errors import ForbiddenError, NotFoundError
from controller_runtime.rest import NoKindMatchError

from pkg.why import Reference, State, diagnose, kinds, reading
from testkit.why.states import manager_crashing
from testkit.why.world import NOW, TrainJobObjects, condition

OPTIONAL = ("kueue.x-k8s.io", "scheduling.x-k8s.io", "scheduling.volcano.sh", "scheduling.run.ai")


def client_of(world: TrainJobObjects, refused: dict[str, Exception] | None = None) -> Any:
    """Return a client of a cluster with the world's objects, without the kinds of gang schedulers and Kueue.

    If the world contains objects of one of these, it is installed.

    Reads of the kinds in ``refused`` raise their error.
    """
    for each in world.objects:
        if each["kind"] in ("Job", "Pod"):
            each["metadata"].setdefault("labels", {})["jobset.sigs.k8s.io/jobset-name"] = "llama"
    objects = [Unstructured.wrap(each) for each in world.objects]
    shared = [
        {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "ClusterTrainingRuntime",
         "metadata": {"name": "torch-distributed"},
         "spec": {"template": {"spec": {"replicatedJobs": [{"name": "node"}]}}}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "team-a"}},
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}},
    ]  # fmt: skip
    client = FakeClient(*objects, *(Unstructured.wrap(each) for each in shared))

    def check(kind: type[Object]) -> None:
        if kind.gvk.group in OPTIONAL and not any(each.gvk.group == kind.gvk.group for each in objects):
            raise NoKindMatchError(kind.gvk)
        if refused and kind.gvk.kind in refused:
            raise refused[kind.gvk.kind]

    async def listing(inner: Any, kind: type[Object], **options: Any) -> Any:
        check(kind)
        return await inner.list(kind, **options)

    async def getting(inner: Any, kind: type[Object], key: Any) -> Any:
        check(kind)
        return await inner.get(kind, key)

    return interceptor.wrap(client, interceptor.Funcs(list=listing, get=getting))


async def test_a_running_train_job_is_read_and_runs() -> None:
    snapshot = await reading.take(client_of(TrainJobObjects()), "team-a", "llama", NOW)

    assert diagnose(snapshot).state is State.RUNNING
    assert len(snapshot.pods) == 2
    assert snapshot.absent == frozenset()
    assert diagnose(snapshot).unread == ()


def test_the_roles_of_config_permit_reading_every_kind_except_secrets() -> None:
    text = (Path(__file__).parents[3] / "config" / "why" / "role.yaml").read_text()
    rules = [rule for role in yaml.safe_load_all(text) for rule in role["rules"]]
    permitted = {(group, name) for rule in rules for group in rule["apiGroups"] for name in rule["resources"]}
    versions = [versions[0] for versions in kinds.VERSIONS.values()]
    read = {
        (each.group, f"{each.kind.lower()}{'es' if each.kind.endswith('s') else 's'}") for each in versions
    }
    subresources = {("", "pods/log"), ("visibility.kueue.x-k8s.io", "localqueues/pendingworkloads")}
    assert subresources <= permitted
    assert permitted - subresources == read - {("", "secrets")}


async def test_the_cluster_queue_is_read_while_a_train_job_waits_in_its_local_queue() -> None:
    world = TrainJobObjects()
    workload = world.workload()
    local = world.make("kueue.x-k8s.io/v1beta1", "LocalQueue", "team-queue")
    local["spec"] = {"clusterQueue": "gpus"}
    del world.make("kueue.x-k8s.io/v1beta1", "ClusterQueue", "gpus")["metadata"]["namespace"]

    snapshot = await reading.take(client_of(world), "team-a", "llama", NOW)
    workload["status"]["conditions"] = [condition("QuotaReserved"), condition("Admitted")]
    admitted = await reading.take(client_of(world), "team-a", "llama", NOW)

    assert [each.name for each in snapshot.all(kinds.CLUSTER_QUEUE)] == ["gpus"]
    assert kinds.CLUSTER_QUEUE not in snapshot.unread
    assert not admitted.all(kinds.CLUSTER_QUEUE)


async def test_a_missing_secret_is_found_by_its_reference() -> None:
    world = TrainJobObjects()
    world.waits("ContainerCreating")
    for pod in world.pods:
        pod["spec"]["volumes"] = [{"name": "token", "secret": {"secretName": "hf-token"}}]

    snapshot = await reading.take(client_of(world), "team-a", "llama", NOW)

    assert snapshot.absent == {Reference("Secret", "team-a", "hf-token")}
    assert diagnose(snapshot).findings[0].cause == "secret-missing"


async def test_a_priority_class_that_does_not_exist_is_found_by_its_reference() -> None:
    world = TrainJobObjects()
    world.waits("ContainerCreating")
    for pod in world.pods:
        pod["spec"]["priorityClassName"] = "urgent"

    snapshot = await reading.take(client_of(world), "team-a", "llama", NOW)

    assert Reference("PriorityClass.scheduling.k8s.io", "", "urgent") in snapshot.absent


async def test_a_reference_that_may_not_be_read_is_named_and_does_not_count_as_missing() -> None:
    world = TrainJobObjects()
    world.waits("ContainerCreating")
    world.pods[0]["spec"]["volumes"] = [{"name": "token", "secret": {"secretName": "hf-token"}}]
    refusal = ForbiddenError("secrets is forbidden", code=403, reason="Forbidden")

    snapshot = await reading.take(client_of(world, {"Secret": refusal}), "team-a", "llama", NOW)

    assert snapshot.absent == frozenset()
    assert "Secret: secrets is forbidden" in diagnose(snapshot).unread


@pytest.mark.parametrize("exists", [True, False])
async def test_a_storage_class_that_does_not_exist_is_found_although_the_claim_has_no_events(
    exists: bool,
) -> None:
    world = TrainJobObjects()
    claim = world.make("v1", "PersistentVolumeClaim", "data")
    claim["spec"], claim["status"] = {"storageClassName": "fast-ssd"}, {"phase": "Pending"}
    if exists:
        del world.make("storage.k8s.io/v1", "StorageClass", "fast-ssd")["metadata"]["namespace"]
    for pod in world.pods:
        pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    world.unscheduled("0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims.")

    found = diagnose(await reading.take(client_of(world), "team-a", "llama", NOW)).findings[0]

    assert found.cause == ("claim-pending" if exists else "storage-class-missing")
    assert ("StorageClass fast-ssd was not found" in found.evidence) is not exists
    assert ("the storage class fast-ssd of the claim data" in found.summary) is not exists


async def test_if_the_runtime_is_missing_one_of_the_other_kind_is_looked_up() -> None:
    world = TrainJobObjects()
    world.make("trainer.kubeflow.org/v1alpha1", "TrainingRuntime", "mine")
    world.train_job["spec"]["runtimeRef"] = {"name": "mine"}

    snapshot = await reading.take(client_of(world), "team-a", "llama", NOW)

    assert [each.name for each in snapshot.all("TrainingRuntime.trainer.kubeflow.org")] == ["mine"]


async def test_an_object_that_the_manager_waits_for_is_looked_up() -> None:
    world = TrainJobObjects()
    world.without_children()
    world.event(
        world.train_job,
        "WaitingForDeletion",
        "Waiting for the deletion of ConfigMap team-a/llama; its finalizers: x",
    )

    snapshot = await reading.take(client_of(world), "team-a", "llama", NOW)

    assert Reference("ConfigMap", "team-a", "llama") in snapshot.absent


async def test_a_refused_kind_is_evidence_and_no_error() -> None:
    refusal = ForbiddenError("nodes is forbidden", code=403, reason="Forbidden")
    world = TrainJobObjects()
    world.without_children()

    snapshot = await reading.take(
        client_of(world, {"Node": refusal, "Deployment": refusal, "Lease": refusal}), "team-a", "llama", NOW
    )

    verdict = diagnose(snapshot)
    assert verdict.findings[0].cause == "manager-silent"
    assert any("nodes is forbidden" in each for each in verdict.unread)
    assert any("not known" in each for each in verdict.findings[0].evidence)


async def test_the_pods_of_a_manager_that_has_no_available_pod_are_read() -> None:
    world = TrainJobObjects()
    manager_crashing(world)
    world.manager["spec"]["selector"] = {"matchLabels": {"app": "trainer"}}
    world.objects[-1]["metadata"]["labels"] = {"app": "trainer"}

    assert (
        "CrashLoopBackOff" in diagnose(await reading.take(client_of(world), "team-a", "llama", NOW)).sentence
    )


async def test_a_cluster_without_job_set_is_named() -> None:
    world = TrainJobObjects()
    world.without_children()
    client = client_of(world, {"JobSet": NoKindMatchError(Unstructured.wrap(world.job_set).gvk)})

    assert diagnose(await reading.take(client, "team-a", "llama", NOW)).findings[0].cause == "jobset-missing"


async def test_a_train_job_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(NotFoundError):
        await reading.take(client_of(TrainJobObjects()), "team-a", "other", NOW)


async def test_secrets_are_read_as_metadata_alone() -> None:
    world = TrainJobObjects()
    for pod in world.pods:
        pod["status"]["phase"] = "Pending"
        pod["spec"]["volumes"] = [{"name": "token", "secret": {"secretName": "hf-token"}}]
    secret = world.make("v1", "Secret", "hf-token", data={"token": "c2VjcmV0"})
    assert secret in world.objects

    snapshot = await reading.take(client_of(world), "team-a", "llama", NOW)

    assert not snapshot.absent
    assert "Secret" not in snapshot.objects


async def test_a_kind_with_any_number_of_objects_is_read_in_a_bounded_number_of_requests() -> None:
    world = TrainJobObjects()
    world.without_children()
    for _ in range(3):
        world.event(world.train_job, "Noise", "nothing")
    requests = 0

    async def listing(inner: Any, kind: type[Object], **options: Any) -> Any:
        nonlocal requests
        found = await inner.list(kind, **{**options, "continue_token": ""})
        if kind.gvk.kind == "Event":
            requests += 1
            found.continue_token = "more"
        return found

    client = interceptor.wrap(client_of(world), interceptor.Funcs(list=listing))
    snapshot = await reading.take(client, "team-a", "llama", NOW)

    assert requests == 40
    assert "Event: only the first 120 were read" in diagnose(snapshot).unread
