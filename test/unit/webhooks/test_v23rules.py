# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Values that Trainer v2.3 refuses and v2.1 admits cause a warning in the profile 2.1, and an error in 2.3."""

import json
from pathlib import Path
from typing import Any

import pytest
from controller_runtime.apis.admission.v1 import AdmissionRequest
from controller_runtime.apis.core.v1 import EnvVar
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import field
from controller_runtime.machinery.errors import InvalidError
from controller_runtime.webhook import MutatorHandler, ValidatorHandler

from pkg.apis.config.v1alpha1 import Configuration, defaulted
from pkg.apis.trainer.v1alpha1 import (
    ClusterTrainingRuntime,
    DatasetInitializer,
    Initializer,
    MLPolicy,
    ModelInitializer,
    Trainer,
    TrainingRuntime,
    TrainJob,
    TrainJobStatus,
)
from pkg.constants import trainer as constants
from pkg.runtime import core
from pkg.webhooks import TrainJobDefaulter, TrainJobWebhook, v23rules, validators
from testkit.builders import make_cluster_training_runtime, make_train_job

IMMUTABLE = "field is immutable"
RECORDED = [
    case
    for case in json.loads((Path(__file__).parents[2] / "testdata" / "crd" / "admission.json").read_text())
    if "causes" in case["want"]["v2.3.0"]
]
"""Objects that the API server admits with v2.1.0's CRDs, and refuses with v2.3.0's."""
KINDS = {kind.gvk.kind: kind for kind in (TrainJob, TrainingRuntime, ClusterTrainingRuntime)}


def job(trainer: Trainer | None = None, *, dataset: str | None = None, **spec: Any) -> TrainJob:
    initializer = (
        Initializer(dataset=DatasetInitializer(storage_uri=dataset)) if dataset is not None else None
    )
    return make_train_job("ns", "bert", trainer=trainer, initializer=initializer, **spec)


def initialized(variables: int) -> TrainJob:
    env = [EnvVar(name=f"E{number}") for number in range(variables)]
    initializer = Initializer(dataset=DatasetInitializer(storage_uri="s3://b", env=env))
    return make_train_job("ns", "bert", initializer=initializer)


def found(old: TrainJob | None, new: TrainJob) -> list[str]:
    return [error.field for error in v23rules.violations(old, new)]


@pytest.mark.parametrize(
    ("new", "fields"),
    [
        (job(Trainer(image="i" * 500, command=["c"] * 128, args=["a" * (1 << 20)]), dataset="s3://b"), []),
        (job(dataset=""), []),
        (job(Trainer(image="i" * 501)), ["spec.trainer.image"]),
        (job(Trainer(command=["c"] * 129)), ["spec.trainer.command"]),
        (job(Trainer(args=["a", "a" * ((1 << 20) + 1)])), ["spec.trainer.args[1]"]),
        (job(Trainer(env=[EnvVar(name=f"E{n}") for n in range(129)])), ["spec.trainer.env"]),
        (initialized(128), []),
        (initialized(129), ["spec.initializer.dataset.env"]),
        (job(dataset="no-scheme"), ["spec.initializer.dataset.storageUri"]),
        (job(dataset="s3://"), ["spec.initializer.dataset.storageUri"]),
        (job(dataset="9s://b"), ["spec.initializer.dataset.storageUri"]),
        (job(dataset="s3://a\nb"), ["spec.initializer.dataset.storageUri"]),
        (job(dataset="s3://" + "b" * 2048), ["spec.initializer.dataset.storageUri"]),
        (job(runtime="r" * 254), ["spec.runtimeRef.name"]),
    ],
)
def test_a_new_train_job_is_checked(new: TrainJob, fields: list[str]) -> None:
    assert found(None, new) == fields


def test_values_that_do_not_change_are_not_checked_again() -> None:
    old = job(Trainer(image="i" * 501), dataset="no-scheme", runtime="r" * 254)
    assert (
        found(old, job(Trainer(image="i" * 501), dataset="no-scheme", runtime="r" * 254, suspend=True)) == []
    )


@pytest.mark.parametrize(
    ("old", "new", "fields"),
    [
        (job(Trainer(num_nodes=1)), job(Trainer(num_nodes=2)), ["spec.trainer"]),
        (job(dataset="s3://a"), job(dataset="s3://b"), ["spec.initializer"]),
        (job(), job(Trainer(num_nodes=2), dataset="s3://b"), []),
        (job(Trainer(num_nodes=2), dataset="s3://b"), job(), []),
        (job(Trainer(num_proc_per_node="4")), job(Trainer(num_proc_per_node=4)), []),
    ],
)
def test_trainer_and_initializer_are_immutable_in_v23(
    old: TrainJob, new: TrainJob, fields: list[str]
) -> None:
    assert found(old, new) == fields


def test_a_word_that_moves_to_the_annotation_is_no_change() -> None:
    moved = job(Trainer())
    moved.metadata.annotations = {constants.NUM_PROC_PER_NODE_ANNOTATION: "auto"}
    assert found(job(Trainer(num_proc_per_node="auto")), moved) == []


def test_a_model_is_checked_as_a_dataset_is() -> None:
    new = make_train_job("ns", "bert", initializer=Initializer(model=ModelInitializer(storage_uri="x")))
    assert found(None, new) == ["spec.initializer.model.storageUri"]


class Admitting:
    """A runtime that admits every TrainJob."""

    async def review(self, _old: Any, _new: Any) -> tuple[list[str], field.ErrorList, list[Any]]:
        return [], field.ErrorList(), []


@pytest.mark.parametrize("version", ["2.1", "2.3"])
async def test_one_profile_warns_and_the_other_refuses(version: str) -> None:
    cfg = Configuration(compatibility_version=version)
    new = job(dataset="no-scheme")
    request = AdmissionRequest(uid="u", operation="CREATE", object=new.to_dict())
    response = await MutatorHandler(TrainJob, TrainJobDefaulter(cfg)).handle(request)
    runtimes: Any = {"ClusterTrainingRuntime.trainer.kubeflow.org": Admitting()}
    webhook = TrainJobWebhook(runtimes, cfg)
    if version == "2.1":
        (warning,) = response.warnings or [""]
        assert warning.startswith('spec.initializer.dataset.storageUri: Invalid value: "no-scheme"')
        assert warning.endswith("; Trainer v2.3 refuses this")
        assert await webhook.validate_create(new) == []
    else:
        assert response.warnings is None
        with pytest.raises(InvalidError, match="must be a valid URI"):
            await webhook.validate_create(new)


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in RECORDED])
async def test_the_second_profile_refuses_as_the_api_server_does_with_v23s_crd(case: dict[str, Any]) -> None:
    kind = KINDS[case["object"]["kind"]]
    # There are no runtimes: the API server with v2.3's CRD refuses these objects before any webhook validates them.
    validator = validators({}, Configuration(compatibility_version="2.3"))[kind]
    operation = "UPDATE" if "old" in case else "CREATE"
    request = AdmissionRequest(
        uid="u", operation=operation, object=case["object"], old_object=case.get("old")
    )
    response = await ValidatorHandler(kind, validator).handle(request)
    status = response.status.to_dict() if response.status is not None else {}
    assert (status.get("code"), status.get("reason")) == (422, "Invalid")
    details, name = status["details"], case["object"]["metadata"]["name"]
    assert (details["group"], details["kind"], details["name"]) == (kind.gvk.group, kind.gvk.kind, name)
    # The recorded causes are sorted.
    assert sorted(details["causes"], key=lambda each: each["field"]) == case["want"]["v2.3.0"]["causes"]
    assert status["message"].startswith(f'{kind.gvk.group_kind} "{name}" is invalid: ')


def runtime(kind: type[TrainingRuntime] | type[ClusterTrainingRuntime], length: int) -> Any:
    policy = {"mpi": {"sshAuthMountPath": "/" * length}}
    containers = [{"name": "node", "image": "i"}]
    template: dict[str, Any] = {"spec": {"template": {"spec": {"containers": containers}}}}
    jobs = [{"name": name, "template": template} for name in ("launcher", "node")]
    spec = {"mlPolicy": policy, "template": {"spec": {"replicatedJobs": jobs}}}
    return kind.from_dict({"metadata": {"name": "r"}, "spec": spec})


@pytest.mark.parametrize("kind", [TrainingRuntime, ClusterTrainingRuntime])
async def test_a_long_mount_path_of_a_runtime_is_a_warning_or_an_error(
    kind: type[TrainingRuntime] | type[ClusterTrainingRuntime],
) -> None:
    short, long = runtime(kind, 4096), runtime(kind, 4097)
    text = "spec.mlPolicy.mpi.sshAuthMountPath: Too long: may not be more than 4096 bytes"
    first = validators({}, Configuration(compatibility_version="2.1"))[kind]
    assert await first.validate_create(short) == []
    assert await first.validate_create(long) == [f"{text}; Trainer v2.3 refuses this"]
    assert await first.validate_update(short, long) == [f"{text}; Trainer v2.3 refuses this"]
    assert await first.validate_update(long, long) == []
    second = validators({}, Configuration(compatibility_version="2.3"))[kind]
    assert await second.validate_create(short) == []
    for refused in (second.validate_create(long), second.validate_update(short, long)):
        with pytest.raises(InvalidError, match=text):
            await refused
    assert await second.validate_update(long, long) == []


@pytest.mark.parametrize("gate", [False, True])
@pytest.mark.parametrize(
    ("before", "after", "trainer", "active", "may_change"),
    [
        pytest.param(True, True, Trainer(num_nodes=3, image="i"), 0, True, id="suspended"),
        pytest.param(
            True, True, Trainer(num_nodes=3, image="i"), 1, False, id="its Jobs have not stopped yet"
        ),
        pytest.param(True, False, Trainer(num_nodes=3, image="i"), 0, False, id="resumed in the same write"),
        pytest.param(
            False, True, Trainer(num_nodes=3, image="i"), 0, False, id="suspended in the same write"
        ),
        pytest.param(False, False, Trainer(num_nodes=3, image="i"), 0, False, id="running"),
        pytest.param(True, True, Trainer(num_nodes=3, image="j"), 0, False, id="another field changes, too"),
    ],
)
async def test_the_number_of_nodes_of_a_suspended_train_job_may_change_only_with_the_feature_gate(
    before: bool, after: bool, trainer: Trainer, active: int, may_change: bool, gate: bool
) -> None:
    cfg = defaulted("2.3")
    cfg.feature_gates = {"MutableNumNodes": gate}
    client = FakeClient(make_cluster_training_runtime("runtime"))
    webhook = TrainJobWebhook(await core.new(client, client, cfg=cfg), cfg)
    old = job(Trainer(num_nodes=1, image="i"), suspend=before)
    old.status = TrainJobStatus.from_dict({"jobsStatus": [{"name": "node", "active": active}]})
    new = job(trainer, suspend=after)
    if may_change and gate:
        assert await webhook.validate_update(old, new) == []
        return
    hint = ", except numNodes while the TrainJob is suspended and none of its Jobs is active" if gate else ""
    with pytest.raises(InvalidError) as error:
        await webhook.validate_update(old, new)
    assert str(error.value).endswith(f"spec.trainer: Invalid value: field is immutable{hint}")


NODES = "spec.trainer.numNodes: Invalid value: {}: spec.trainer.numNodes in body should be greater than or equal to 0"
PROCESSES = (
    "spec.trainer.numProcPerNode: Invalid value: {}: numProcPerNode must be greater than or equal to 1"
)
SLOTS = "spec.mlPolicy.mpi.numProcPerNode: Invalid value: 0: NumProcPerNode in mpiPolicy must be >= 1"


@pytest.mark.parametrize("version", ["2.1", "2.3", "2.4"])
@pytest.mark.parametrize(
    ("trainer", "texts"),
    [
        ({"numNodes": -3}, [NODES.format(-3)]),
        ({"numNodes": 0}, []),
        ({"numProcPerNode": 0}, [PROCESSES.format(0)]),
        ({"numProcPerNode": "auto"}, []),
        ({"numNodes": -1, "numProcPerNode": -5}, [NODES.format(-1), PROCESSES.format(-5)]),
        ({"numNodes": 1, "numProcPerNode": 1}, []),
    ],
)
async def test_the_preview_refuses_low_numbers_as_the_api_server_does_with_the_next_crd(
    trainer: dict[str, Any], texts: list[str], version: str
) -> None:
    runtimes: Any = {"ClusterTrainingRuntime.trainer.kubeflow.org": Admitting()}
    webhook = TrainJobWebhook(runtimes, defaulted(version))
    stored, new = job(), job(Trainer.from_dict(trainer))
    assert await webhook.validate_update(new, new) == []  # what is stored may stay
    for request in (webhook.validate_create(new), webhook.validate_update(stored, new)):
        if version != "2.4" or not texts:
            assert await request == []
            continue
        with pytest.raises(InvalidError) as refused:
            await request
        assert refused.value.code == 422
        assert [f"{each['field']}: {each['message']}" for each in refused.value.causes] == texts


@pytest.mark.parametrize("kind", [TrainingRuntime, ClusterTrainingRuntime])
async def test_the_preview_refuses_no_processes_of_mpi(
    kind: type[TrainingRuntime] | type[ClusterTrainingRuntime],
) -> None:
    def slots(count: int) -> Any:
        obj = runtime(kind, 1)
        obj.spec.ml_policy = MLPolicy.from_dict({"mpi": {"numProcPerNode": count}})
        return obj

    assert await validators({}, defaulted("2.3"))[kind].validate_create(slots(0)) is not None
    preview = validators({}, defaulted("2.4"))[kind]
    for refused in (preview.validate_create(slots(0)), preview.validate_update(slots(1), slots(0))):
        with pytest.raises(InvalidError, match=SLOTS):
            await refused
    assert await preview.validate_create(slots(1)) == []


async def test_the_preview_refuses_flux_without_processes_with_422_before_the_plugin_is_asked() -> None:
    flux = make_cluster_training_runtime("runtime")
    flux.spec.ml_policy = MLPolicy.from_dict({"flux": {}})
    new = job(Trainer(num_proc_per_node=0))
    for version, expected in (("2.3", field.AggregateError), ("2.4", InvalidError)):
        cfg, client = defaulted(version), FakeClient(flux)
        webhook = TrainJobWebhook(await core.new(client, client, cfg=cfg), cfg)
        with pytest.raises(expected, match=r"spec\.trainer\.numProcPerNode"):
            await webhook.validate_create(new)
