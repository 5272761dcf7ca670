# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""How an object is named in one line, and the table of containers."""

from __future__ import annotations

from typing import Any

import pytest
from controller_runtime.machinery import Object
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.schedulerplugins import v1alpha1 as schedulerplugins
from pkg.apis.scheduling import v1beta1

from trainerctl.offline import rendering


@pytest.mark.parametrize(
    ("kind", "spec", "text"),
    [
        (schedulerplugins.PodGroup, {"minMember": 3}, "PodGroup job of 3 pods"),
        (v1beta1.PodGroup, {"schedulingPolicy": {"gang": {"minCount": 4}}}, "PodGroup job of 4 pods"),
        (JobSet, {}, "JobSet job"),
    ],
)
def test_a_group_is_named_with_its_number_of_pods(
    kind: type[Object], spec: dict[str, Any], text: str
) -> None:
    assert rendering.summary(kind.from_dict({"metadata": {"name": "job"}, "spec": spec})) == text


def test_the_table_has_a_row_for_each_container_and_names_the_job_once() -> None:
    node = {
        "name": "node",
        "image": "registry.example/team/train:1",
        "command": ["sh", "-c"],
        "args": ["a  b\n  c"],
        "resources": {"limits": {"nvidia.com/gpu": 2, "cpu": 1}, "requests": {"cpu": 3}},
    }
    pod = {"containers": [node, {"name": "side", "resources": {}}], "initContainers": [{"name": "first"}]}
    template = {"spec": {"parallelism": 4, "template": {"spec": pod}}}
    jobs = [{"name": "node", "replicas": 2, "template": template}, {"name": "last", "template": {"spec": {}}}]

    assert rendering.containers(JobSet.from_dict({"spec": {"replicatedJobs": jobs}})) == [
        ("node", "8", "first", "-", "-", "-"),
        ("", "", "", "train:1", "2 gpu 3 cpu", "sh -c a b c"),
        ("", "", "side", "-", "-", "-"),
    ]
