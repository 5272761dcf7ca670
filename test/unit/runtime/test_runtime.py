# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from controller_runtime.apis.core.v1 import Container, PodSpec, ResourceRequirements, Volume

from pkg import runtime
from pkg.apis.jobset.v1alpha2 import JobSetSpec
from pkg.apis.trainer.v1alpha1 import RuntimeRef
from testkit.builders import make_replicated_job


def test_a_pod_set_has_lists_of_its_own_and_at_least_one_pod() -> None:
    spec = PodSpec(containers=[Container(name="a", env=[])], volumes=[Volume(name="v")])

    pod_set = runtime.new_pod_set("node", "trainer", 0, spec)

    assert pod_set.count == 1
    assert pod_set.volumes == spec.volumes
    assert pod_set.volumes is not spec.volumes
    assert pod_set.containers == [runtime.Container("a", env=[])]


def test_the_template_is_told_apart_by_its_kind() -> None:
    spec = JobSetSpec()

    assert runtime.template_spec_apply(runtime.new_info(template_spec_obj_apply=spec), JobSetSpec) is spec
    assert runtime.template_spec_apply(runtime.new_info(template_spec_obj_apply=spec), PodSpec) is None
    assert runtime.template_spec_apply(None, JobSetSpec) is None


@pytest.fixture
def info() -> runtime.Info:
    return runtime.new_info(
        pod_sets=[
            runtime.PodSet("a", containers=[runtime.Container("node")]),
            runtime.PodSet(
                "b", ancestor="trainer", containers=[runtime.Container("x"), runtime.Container("node")]
            ),
            runtime.PodSet("c", ancestor="trainer"),
        ]
    )


def test_pod_sets_are_found_by_name_and_first_by_ancestor(info: runtime.Info) -> None:
    sets = info.template_spec.pod_sets

    assert info.find_pod_set_by_ancestor("trainer") is sets[1]
    assert info.find_pod_set_by_ancestor("other") is None
    assert info.find_pod_set_by_name("c") is sets[2]
    assert info.find_container_by_pod_set_ancestor_container_name("trainer", "node") is sets[1].containers[1]
    assert info.find_container_by_pod_set_ancestor_container_name("trainer", "y") is None
    assert info.find_container_by_pod_set_ancestor_container_name("other", "node") is None


@pytest.mark.parametrize(
    ("group", "kind", "want"),
    [
        ("trainer.kubeflow.org", "TrainingRuntime", "TrainingRuntime.trainer.kubeflow.org"),
        (None, "A", "A"),
        (None, None, ""),
    ],
)
def test_a_reference_becomes_a_registry_key(group: str | None, kind: str | None, want: str) -> None:
    assert (
        runtime.runtime_ref_to_runtime_registry_key(RuntimeRef(name="x", api_group=group, kind=kind)) == want
    )


@pytest.mark.parametrize(
    ("requests", "limits", "want"),
    [
        pytest.param(None, None, 0, id="nothing"),
        pytest.param({"nvidia.com/gpu": "2"}, {"nvidia.com/gpu": "3"}, 2, id="requests first"),
        pytest.param({"cpu": "1"}, {"amd.com/GPU": "3"}, 3, id="then limits, any vendor"),
        pytest.param({"nvidia.com/gpu": "500m"}, None, 1, id="rounded up"),
    ],
)
def test_gpus_are_counted(requests: dict[str, str] | None, limits: dict[str, str] | None, want: int) -> None:
    assert runtime.get_num_gpu_per_node(ResourceRequirements(requests=requests, limits=limits)) == want
    assert runtime.get_num_gpu_per_node(None) == 0


@pytest.mark.parametrize(
    ("name", "ancestor", "container", "found"),
    [
        ("node", None, "node", True),
        ("x", "trainer", "node", True),
        ("x", None, "node", False),
        ("node", None, "y", False),
    ],
)
def test_resources_are_those_of_the_trainers_node(
    name: str, ancestor: str | None, container: str, found: bool
) -> None:
    resources = ResourceRequirements(limits={"cpu": "1"})
    job = make_replicated_job(name, ancestor=ancestor, container=container, resources=resources)
    info = runtime.new_info(template_spec_obj_apply=JobSetSpec(replicated_jobs=[job]))

    assert runtime.extract_resource_per_node_from_runtime(info) == (resources if found else None)


def test_a_reference_to_an_unregistered_kind_is_named() -> None:
    with pytest.raises(runtime.UnsupportedRuntimeError, match=r"^unsupported runtime: Foo\.a\.b$"):
        runtime.runtime_for({}, RuntimeRef(name="x", api_group="a.b", kind="Foo"))
