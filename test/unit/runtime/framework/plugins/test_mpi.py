# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any, cast

import anyio
import pytest
from controller_runtime import event
from controller_runtime.apis.core.v1 import ConfigMap, Container, ResourceRequirements, Secret
from controller_runtime.apis.meta.v1 import ObjectMeta, OwnerReference
from controller_runtime.client import interceptor
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Object
from controller_runtime.machinery.errors import StatusError
from controller_runtime.reconcile import Request
from controller_runtime.workqueue import PriorityQueue

from pkg.apis.config.v1alpha1 import Configuration, defaulted
from pkg.apis.trainer.v1alpha1 import MLPolicy, MPIMLPolicySource, Trainer, TrainingRuntimeSpec, TrainJob
from pkg.runtime import core as runtimes
from pkg.runtime import framework
from pkg.runtime.framework import PluginError
from pkg.runtime.framework.plugins import jobset, mpi, sshkeys
from pkg.util import trainjob
from testkit.builders import make_replicated_job, make_train_job, make_training_runtime_spec

KEYS = sshkeys.SSHKeys(b"private", b"public")
GPUS = ResourceRequirements(limits={"nvidia.com/gpu": "4"})


def spec_of(*jobs: str, nodes: int = 1, **policy: Any) -> TrainingRuntimeSpec:
    made = [
        make_replicated_job(name, ancestor="trainer" if name == "launcher" else None, container="node")
        for name in jobs or ("launcher", "node")
    ]
    return make_training_runtime_spec(
        *made, ml_policy=MLPolicy(num_nodes=nodes, mpi=MPIMLPolicySource(**policy))
    )


def job(**trainer: Any) -> TrainJob:
    return make_train_job("team-a", "job", trainer=Trainer(**trainer))


async def objects(
    spec: TrainingRuntimeSpec,
    train_job: TrainJob,
    client: FakeClient | None = None,
    cfg: Configuration | None = None,
) -> dict[str, Object]:
    client, cfg = client or FakeClient(), cfg or defaulted()
    plugins = [mpi.MPI(client, lambda: KEYS), jobset.JobSetPlugin(client)]
    for plugin in plugins:
        plugin.configure(cfg)
    made = framework.Framework(plugins)
    built = await runtimes.TrainingRuntime(made, client, cfg).objects_from(spec, train_job)
    return {obj.gvk.kind: obj for obj in built}


async def host_file(
    spec: TrainingRuntimeSpec, train_job: TrainJob, cfg: Configuration | None = None
) -> list[str]:
    found = (await objects(spec, train_job, cfg=cfg))["ConfigMap"]
    assert isinstance(found, ConfigMap)
    assert found.data is not None
    return found.data["hostfile"].splitlines()


def keys_of(*owners: OwnerReference) -> Secret:
    metadata = ObjectMeta(name="job-mpi-ssh-auth", namespace="team-a", owner_references=list(owners))
    return Secret(metadata=metadata)


async def test_a_secret_that_exists_is_not_written_again() -> None:
    client = FakeClient(keys_of(trainjob.controller_reference(job())))

    assert (await objects(spec_of(), job(), client)).keys() == {"ConfigMap", "JobSet"}


@pytest.mark.parametrize(
    "owners",
    [
        pytest.param([], id="without a controller"),
        pytest.param(
            [OwnerReference(kind="ExternalSecret", name="job", uid="u", controller=True)], id="of another"
        ),
    ],
)
async def test_keys_that_another_client_made_are_used(owners: list[OwnerReference]) -> None:
    client = FakeClient(keys_of(*owners))

    assert (await objects(spec_of(), job(), client)).keys() == {"ConfigMap", "JobSet"}


async def test_keys_of_an_earlier_train_job_of_the_name_are_not_used() -> None:
    owner = OwnerReference(kind="TrainJob", name="job", uid="earlier", controller=True)

    with pytest.raises(trainjob.PredecessorError, match="secret team-a/job-mpi-ssh-auth"):
        await objects(spec_of(), job(), FakeClient(keys_of(owner)))


async def test_a_secret_that_cannot_be_read_is_not_replaced() -> None:
    async def fail(*_: Any) -> Any:
        raise StatusError("denied", code=403, reason="Forbidden")

    client = interceptor.wrap(FakeClient(), interceptor.Funcs(get=fail))
    plugin = mpi.MPI(client, lambda: KEYS)
    served = runtimes.TrainingRuntime(framework.Framework([plugin]), client)

    with pytest.raises(StatusError, match="denied"):
        await served.objects_from(spec_of(), job())


@pytest.mark.parametrize(
    "jobs",
    [
        pytest.param(("node", "launcher"), id="the nodes come before the launcher"),
        pytest.param(("node",), id="no job is labelled as the trainer's"),
    ],
)
async def test_the_gpus_of_the_train_job_are_slots_although_the_nodes_do_not_get_them(
    jobs: tuple[str, ...],
) -> None:
    """Trainer v2.3 merges the TrainJob's resources only into the labelled job, but counts them for the slots."""
    spec, train_job = spec_of(*jobs, num_proc_per_node=1), job(resources_per_node=GPUS)

    for version in ("2.1", "2.3"):
        assert await host_file(spec, train_job, defaulted(version)) == ["job-node-0-0.job slots=4"]


async def test_more_nodes_than_a_host_file_can_hold_are_refused_quickly() -> None:
    with pytest.raises(
        PluginError, match=r"^trainjob team-a/job: the host file of 2147483647 nodes is larger"
    ):
        await objects(spec_of(), job(num_nodes=2**31 - 1))


async def test_billions_of_jobs_without_pods_are_not_counted() -> None:
    spec = spec_of()
    for each in spec.template.spec.replicated_jobs or ():
        each.replicas = 2**31 - 1

    assert await host_file(spec, job(num_nodes=0), defaulted("2.3")) == []


async def test_the_runtime_keeps_its_policy() -> None:
    spec = spec_of(num_proc_per_node=1)
    before = spec.to_json()

    await objects(spec, job(num_proc_per_node=7))

    assert spec.to_json() == before


async def test_a_sidecar_before_the_training_has_neither_keys_nor_hosts_and_the_training_has_both() -> None:
    spec = spec_of("launcher")
    assert spec.template is not None
    assert spec.template.spec.replicated_jobs is not None
    pod = spec.template.spec.replicated_jobs[0].template.spec.template.spec
    pod.containers = [Container(name="sidecar"), *(pod.containers or ())]

    made = (await objects(spec, job()))["JobSet"].to_dict()["spec"]["replicatedJobs"][0]

    sidecar, training = made["template"]["spec"]["template"]["spec"]["containers"]
    assert "volumeMounts" not in sidecar
    assert [mount["name"] for mount in training["volumeMounts"]] == ["mpi-ssh-auth", "mpi-hostfile"]


class Notes:
    """A stub of a controller builder that records its calls."""

    def __init__(self) -> None:
        self.watched: dict[type[Object], tuple[Any, dict[str, Any]]] = {}

    def watches(self, kind: type[Object], handle: Any, **options: Any) -> Notes:
        self.watched[kind] = handle, options
        return self


async def test_children_are_watched_by_their_metadata_once_a_train_job_has_some() -> None:
    client, notes = FakeClient(), Notes()
    plugin = mpi.MPI(client, lambda: KEYS)
    for add in plugin.reconciler_builders():
        add(cast("Any", notes), client, cast("Any", None))
    assert notes.watched.keys() == {ConfigMap, Secret}
    begun: list[type[Object]] = []

    async with anyio.create_task_group() as tasks:

        async def watch(kind: type[Object]) -> None:
            await notes.watched[kind][1]["when"]()
            begun.append(kind)

        for kind, (_, options) in notes.watched.items():
            assert options["only_metadata"] is True
            tasks.start_soon(watch, kind)
        served = runtimes.TrainingRuntime(framework.Framework([plugin]), client)
        await served.objects_from(make_training_runtime_spec(), job())
        await anyio.sleep(60)
        assert begun == []

        (secret, config_map) = await served.objects_from(spec_of(), job())

    assert begun == [ConfigMap, Secret]
    queue: PriorityQueue[Request] = PriorityQueue()
    for kind, child in ((Secret, secret), (ConfigMap, config_map)):
        notes.watched[kind][0].delete(event.DeleteEvent(child), queue)
    assert str(await queue.get()) == "team-a/job"
    assert len(queue) == 0
