# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from pkg.podgrouper.plugins import GroupingError

KINDS = [
    ("TFJob", "tfReplicaSpecs", ()),
    ("XGBoostJob", "xgbReplicaSpecs", ("Master", "Worker")),
    ("JAXJob", "jaxReplicaSpecs", ("Worker",)),
    ("PyTorchJob", "pytorchReplicaSpecs", ()),
    ("MPIJob", "mpiReplicaSpecs", ("Launcher", "Worker")),
]


@pytest.mark.parametrize(("kind", "field", "mandatory"), KINDS)
async def test_a_job_needs_all_replicas_or_what_its_policy_says(
    kind: str, field: str, mandatory: tuple[str, ...], make_object: Any, make_pod: Any, group: Any
) -> None:
    specs = {role: {"replicas": 2} for role in (*mandatory, "Other")}
    policy = {"runPolicy": {"schedulingPolicy": {"minAvailable": 7}}}
    plain = make_object("kubeflow.org/v1", kind, "j", spec={field: specs})
    job = make_object("kubeflow.org/v1", kind, "j", spec={field: specs, **policy})

    assert (await group(make_pod("p", plain), plain)).min_available == 2 * len(specs)
    assert (await group(make_pod("p", job), job)).min_available == 7


@pytest.mark.parametrize(("kind", "field", "mandatory"), KINDS)
async def test_roles_a_job_cannot_do_without(
    kind: str, field: str, mandatory: tuple[str, ...], make_object: Any, make_pod: Any, group: Any
) -> None:
    for missing in mandatory:
        specs = {role: {"replicas": 2} for role in (*mandatory, "Other") if role != missing}
        job = make_object("kubeflow.org/v1", kind, "j", spec={field: specs})

        with pytest.raises(
            GroupingError, match=f"the type of the job j doesn't have a {missing} replica spec"
        ):
            await group(make_pod("p", job), job)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "the type of the job j doesn't have a tfReplicaSpecs field"),
        ({"tfReplicaSpecs": {"PS": {}}}, "the type of the job j doesn't allow for 0 PS pods"),
        ({"tfReplicaSpecs": {"PS": {"replicas": 0}}}, "the type of the job j doesn't allow for 0 PS pods"),
        (
            {"tfReplicaSpecs": {}},
            "failed calculate number of pods for a distributed job j. Must be .* but got 0",
        ),
        ({"tfReplicaSpecs": {"PS": {"replicas": -2}}}, "Must be greater than 0, but got -2"),
        (
            {"tfReplicaSpecs": {"PS": {"replicas": 2**62}, "Worker": {"replicas": 2**62}}},
            "but got -9223372036854775808",
        ),
        (
            {"tfReplicaSpecs": {"PS": {"replicas": "2"}}},
            r"^\.spec\.tfReplicaSpecs\.PS\.replicas accessor error",
        ),
        (
            {"runPolicy": {"schedulingPolicy": []}},
            r"^\.spec\.runPolicy\.schedulingPolicy\.minAvailable accessor",
        ),
    ],
)
async def test_what_is_refused(
    spec: dict[str, Any], message: str, make_object: Any, make_pod: Any, group: Any
) -> None:
    job = make_object("kubeflow.org/v1", "TFJob", "j", spec=spec)

    with pytest.raises(GroupingError, match=message):
        await group(make_pod("p", job), job)


async def test_a_sum_is_cut_to_32_bits(make_object: Any, make_pod: Any, group: Any) -> None:
    spec = {"tfReplicaSpecs": {"PS": {"replicas": 2**32}, "Worker": {"replicas": 3}}}
    job = make_object("kubeflow.org/v1", "TFJob", "j", spec=spec)

    assert (await group(make_pod("p", job), job)).min_available == 3
