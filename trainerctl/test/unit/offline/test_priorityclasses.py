# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""PriorityClasses of Volcano's runtimes: from the files, from the cluster, or not known."""

from collections.abc import Callable

import pytest
from controller_runtime.apis.scheduling.v1 import PriorityClass
from controller_runtime.client import interceptor
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Object
from controller_runtime.machinery.errors import ForbiddenError, NotFoundError

from trainerctl.offline.filesclient import FilesClient

CLASS = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 10\n"
JOB = """apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: gang, labels: {trainer.kubeflow.org/framework: torch}}
spec:
  mlPolicy: {numNodes: 1}
  podGroupPolicy: {volcano: {}}
  template:
    spec:
      replicatedJobs:
        - name: node
          template:
            metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
            spec: {template: {spec: {priorityClassName: high, containers: [{name: node, image: i}]}}}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: job}
spec: {runtimeRef: {name: gang}}
"""
NOTE = "it is not known whether the PriorityClass high exists"


@pytest.mark.parametrize("verb", ["validate", "render", "explain"])
@pytest.mark.parametrize("given", [True, False], ids=["in the files", "unknown"])
def test_a_priority_class_is_read_from_the_files_and_otherwise_noted(
    tool: Callable[..., tuple[int, str, str]], verb: str, given: bool
) -> None:
    code, *said = tool(verb, *([CLASS] if given else []), JOB)
    assert (code, NOTE in "".join(said)) == (0, not given)


async def test_a_priority_class_is_read_from_the_cluster() -> None:
    cluster = FakeClient(PriorityClass.from_dict({"metadata": {"name": "high"}, "value": 10}))
    client = FilesClient((), cluster)
    assert (await client.get(PriorityClass, ("", "high"))).name == "high"
    with pytest.raises(NotFoundError):
        await client.get(PriorityClass, ("", "low"))
    assert client.notes == []


async def test_a_priority_class_that_may_not_be_read_is_noted_once() -> None:
    async def deny(_client: object, kind: type[Object], key: object) -> Object:
        raise ForbiddenError("no", code=403, reason="Forbidden")

    client = FilesClient((), interceptor.wrap(FakeClient(), interceptor.Funcs(get=deny)))
    for _ in range(2):
        await client.get(PriorityClass, ("", "high"))
    assert client.notes == [f"{NOTE}: no"]
