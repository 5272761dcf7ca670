# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import base64
from typing import Any, cast

import pytest
from controller_runtime import event
from controller_runtime.apis.core.v1 import ConfigMap, Secret
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Object, metadata_only
from controller_runtime.reconcile import Request
from controller_runtime.workqueue import PriorityQueue

from pkg import config, features
from pkg.apis.config.v1alpha1 import Configuration
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import MLPolicy, Trainer, TrainingRuntimeSpec
from pkg.runtime import core as runtimes
from pkg.runtime import framework
from pkg.runtime.framework import PluginError
from pkg.runtime.framework.plugins import registry, trainjobstatus
from pkg.util import trainjob
from testkit.builders import make_replicated_job, make_train_job, make_training_runtime_spec
from testkit.controllers import RecordedBuilder

JOB = make_train_job(
    "lab",
    "bert",
    trainer=Trainer.from_dict({"env": [{"name": "KUBEFLOW_TRAINER_SERVER_URL", "value": "mine"}]}),
)
SPEC = make_training_runtime_spec(
    make_replicated_job("dataset-initializer", ancestor="dataset-initializer"),
    make_replicated_job("node", ancestor="trainer"),
    ml_policy=MLPolicy(num_nodes=2),
)


def enabled() -> Configuration:
    cfg = config.load()
    cfg.cert_management.webhook_secret_name = "certs"
    cfg.cert_management.webhook_service_name = "manager"
    cfg.status_server.port = 1234
    return cfg.model_copy(update={"feature_gates": {features.TRAIN_JOB_STATUS: True}})


def secret(**data: str) -> Secret:
    return Secret.from_dict({"metadata": {"namespace": "kubeflow-system", "name": "certs"}, "data": data})


async def build(
    client: FakeClient, cfg: Configuration | None = None, spec: TrainingRuntimeSpec = SPEC
) -> list[Object]:
    gates = features.resolve({features.TRAIN_JOB_STATUS: True})
    pipeline = await framework.new(client, registry.new_registry((), gates), client, cfg or enabled())
    return await runtimes.TrainingRuntime(pipeline, client).objects_from(spec, JOB)


def job_set(objects: list[Object]) -> JobSet:
    (found,) = [each for each in objects if isinstance(each, JobSet)]
    return found


def test_it_is_registered_with_its_feature_gate() -> None:
    assert trainjobstatus.Status.name not in registry.new_registry(())
    assert trainjobstatus.Status.name not in registry.new_registry((), features.resolve({}))
    gates = features.resolve({features.TRAIN_JOB_STATUS: True})
    assert trainjobstatus.Status.name in registry.new_registry((), gates)


async def test_the_trainers_pods_get_address_token_and_authority() -> None:
    objects = await build(FakeClient(secret(**{"ca.crt": base64.b64encode(b"PEM").decode()})))

    (config_map,) = [each for each in objects if isinstance(each, ConfigMap)]
    assert config_map.to_dict()["data"] == {"ca.crt": "PEM"}
    assert (config_map.namespace, config_map.name) == ("lab", "bert-tls-config")
    assert config_map.metadata.owner_references == [trainjob.controller_reference(JOB)]
    initializer, node = (
        job.template.spec.template.spec.to_dict() for job in job_set(objects).spec.replicated_jobs or ()
    )
    assert "volumes" not in initializer
    (volume,) = node["volumes"]
    assert volume["projected"]["sources"] == [
        {
            "serviceAccountToken": {
                "audience": "trainer.kubeflow.org/v1alpha1/namespaces/lab/trainjobs/bert/status",
                "expirationSeconds": 3600,
                "path": "token",
            }
        },
        {"configMap": {"items": [{"key": "ca.crt", "path": "ca.crt"}], "name": "bert-tls-config"}},
    ]
    (container,) = node["containers"]
    folder = "/var/run/secrets/kubeflow/trainer"
    assert container["volumeMounts"] == [{"name": volume["name"], "mountPath": folder, "readOnly": True}]
    assert {env["name"]: env["value"] for env in container["env"]} == {
        "KUBEFLOW_TRAINER_SERVER_URL": "mine",
        "KUBEFLOW_TRAINER_SERVER_CA_CERT": f"{folder}/ca.crt",
        "KUBEFLOW_TRAINER_SERVER_TOKEN": f"{folder}/token",
    }


@pytest.mark.parametrize("version", ["2.1", "2.3", "2.4"])
async def test_the_variables_follow_those_of_the_policies_and_the_train_jobs_own_are_kept(
    version: str,
) -> None:
    cfg = enabled().model_copy(update={"compatibility_version": version})
    spec = SPEC.model_copy(update={"ml_policy": MLPolicy.from_dict({"numNodes": 2, "torch": {}})})
    client = FakeClient(secret(**{"ca.crt": base64.b64encode(b"PEM").decode()}))

    node = (job_set(await build(client, cfg, spec)).spec.replicated_jobs or [])[1]

    (container,) = node.template.spec.template.spec.to_dict()["containers"]
    names = [each["name"] for each in container["env"]]
    added = [index for index, name in enumerate(names) if name.startswith("KUBEFLOW_TRAINER_SERVER_")]
    of_torch = [index for index, name in enumerate(names) if name.startswith("PET_")]
    assert (len(added), len(of_torch)) == (3, 5)
    own = names.index("KUBEFLOW_TRAINER_SERVER_URL")
    assert container["env"][own]["value"] == "mine"
    assert all(index > max(of_torch) for index in added if index != own)


async def test_pods_trust_the_former_authority_too_while_the_secret_holds_it() -> None:
    data = {
        "ca.crt": base64.b64encode(b"NEW\n").decode(),
        "ca-former.crt": base64.b64encode(b"OLD\n").decode(),
    }
    objects = await build(FakeClient(secret(**data)))
    (config_map,) = [each for each in objects if isinstance(each, ConfigMap)]
    assert config_map.data == {"ca.crt": "NEW\nOLD\n"}


async def test_a_runtime_without_a_trainer_gets_nothing_in_its_pods() -> None:
    spec = make_training_runtime_spec(make_replicated_job("other"), ml_policy=MLPolicy(num_nodes=2))
    objects = await build(FakeClient(secret(**{"ca.crt": base64.b64encode(b"PEM").decode()})), spec=spec)
    assert "volumes" not in str(job_set(objects).to_dict())


@pytest.mark.parametrize(
    ("data", "woken"), [({"ca.crt": "b"}, [JOB.key]), ({"ca.crt": "a", "other": "b"}, [])]
)
async def test_another_authority_wakes_all_train_jobs(data: dict[str, str], woken: list[object]) -> None:
    builder: Any = RecordedBuilder()
    trainjobstatus.Status(FakeClient())._watch_secret(builder, FakeClient(JOB), cast("Any", None))
    queue: PriorityQueue[Request] = PriorityQueue()
    update = event.UpdateEvent(secret(**{"ca.crt": "a"}), secret(**data))
    (wanted,) = builder.options[Secret]["predicates"]
    if wanted.update(update):
        await builder.handlers[Secret].update(update, queue)
    assert [(await queue.get_with_priority())[0] for _ in range(len(queue))] == woken


async def test_the_address_is_that_of_the_service() -> None:
    plugin = trainjobstatus.Status(FakeClient())
    plugin.configure(enabled())
    assert plugin._environment(JOB)[0].value == (
        "https://manager.kubeflow-system.svc:1234/apis/trainer.kubeflow.org/v1alpha1/namespaces/lab/trainjobs/bert/status"
    )


@pytest.mark.parametrize("data", [{}, {"ca.crt": ""}, {"ca.crt": "!"}, {"ca.crt": "é"}, {"ca.crt": "/w=="}])
async def test_a_secret_without_an_authority_is_an_error(data: dict[str, str]) -> None:
    with pytest.raises(PluginError, match=r"failed to find status server ca\.crt in tls secret"):
        await build(FakeClient(secret(**data)))


async def test_a_secret_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(PluginError, match=r"failed to look up status server tls secret: .*certs"):
        await build(FakeClient())


def test_of_all_secrets_only_that_of_the_certificates_is_cached_in_full() -> None:
    options = trainjobstatus.cache_options(enabled())

    assert options[Secret].fields == {"metadata.name": "certs"}
    assert options[Secret].namespaces == ("kubeflow-system",)
    assert options[metadata_only(Secret)].fields is None
