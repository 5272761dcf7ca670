# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A test of a grouper needs a pod, its job and a client in memory."""

import asyncio

import controller_runtime as ctrl
import pytest
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.fake import FakeClient
from mybigdata_grouper import groupers

from pkg.podgrouper.plugins import GroupingError
from pkg.podgrouper.plugins.defaultgrouper import DefaultGrouper
from pkg.podgrouper.podgroup import Metadata


def group(**spec: object) -> Metadata:
    job = ctrl.Unstructured.wrap(
        {
            "apiVersion": "bigdata.example.com/v1",
            "kind": "MyBigDataJob",
            "metadata": {"name": "count", "namespace": "team-a", "uid": "1", "labels": {"project": "words"}},
            "spec": spec,
        }
    )
    pod = Pod(metadata=ctrl.ObjectMeta(name="count-0", namespace="team-a"))
    client = FakeClient(job, pod)
    (grouper,) = groupers(DefaultGrouper(client), client).values()
    return asyncio.run(grouper.get_pod_group_metadata(job, pod))


def test_all_replicas_are_needed() -> None:
    metadata = group(replicas=4)

    assert (metadata.name, metadata.queue, metadata.min_available) == ("pg-count-1", "words", 4)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, r"MyBigDataJob team-a/count: spec\.replicas is missing"),
        ({"replicas": "4"}, r"\.spec\.replicas accessor error: 4 is of the type string, expected int64"),
    ],
)
def test_a_job_without_a_number_of_replicas_is_refused(spec: dict[str, object], message: str) -> None:
    with pytest.raises(GroupingError, match=message):
        group(**spec)
