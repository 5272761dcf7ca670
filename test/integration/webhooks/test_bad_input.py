# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Bad input of both API generations: each is one error of the schema or a webhook, and never a server error."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from controller_runtime.client import LiveClient
from controller_runtime.machinery import Unstructured
from controller_runtime.machinery.errors import StatusError

from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime
from testkit.builders import runtime_patch

pytestmark = pytest.mark.integration

Document = dict[str, Any]
Running = Callable[..., AbstractAsyncContextManager[None]]


def patch(manager: str = "a.io/b", job: str = "node", **pod: Any) -> Document:
    return runtime_patch(manager, pod, job=job)


PATCHES = "spec.runtimePatches"
BELOW = f"{PATCHES}[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.spec"
CASES: dict[str, tuple[Document, str]] = {
    "an unknown job": (
        {"runtimePatches": [patch(job="nowhere", nodeSelector={"a": "b"})]},
        "must not have replicated job that doesn't exist in the runtime job template",
    ),
    "an unknown container": (
        {"runtimePatches": [patch(containers=[{"name": "nowhere"}])]},
        "must not have container that doesn't exist in the runtime job",
    ),
    "17 managers": (
        {"runtimePatches": [patch(f"a.io/{number}") for number in range(17)]},
        f"{PATCHES}: Too many: 17: must have at most 16 items",
    ),
    "a manager twice": ({"runtimePatches": [patch(), patch()]}, f"{PATCHES}[1]: Duplicate value"),
    "a manager without a domain": ({"runtimePatches": [patch("me")]}, f"{PATCHES}"),
    "a volume without a name": (
        {"runtimePatches": [patch(volumes=[{"emptyDir": {}}])]},
        f"{BELOW}.volumes[0].name: Required value",
    ),
    "a container without a name": (
        {"runtimePatches": [patch(containers=[{"env": []}])]},
        f"{BELOW}.containers[0].name: Required value",
    ),
    "a map where a list is": (
        {"runtimePatches": [patch(tolerations={"a": "b"})]},
        f"{BELOW}.tolerations: Invalid value",
    ),
    "an unknown kind of runtime": (
        {"runtimeRef": {"name": "torch", "kind": "Runtime"}},
        "unsupported runtime: Runtime.trainer.kubeflow.org",
    ),
    "nodes over int32": ({"trainer": {"numNodes": 2**31}}, "spec.trainer.numNodes: Invalid value"),
    "processes over int32": (
        {"trainer": {"numProcPerNode": 2**31}},
        "spec.trainer.numProcPerNode: Invalid value",
    ),
    "processes over int32 in text": (
        {"trainer": {"numProcPerNode": str(2**31)}},
        "spec.trainer.numProcPerNode: Invalid value",
    ),
    "a mode over int32": (
        {
            "podTemplateOverrides": [
                {
                    "targetJobs": [{"name": "node"}],
                    "spec": {"volumes": [{"name": "v", "secret": {"secretName": "s", "defaultMode": 2**32}}]},
                }
            ]
        },
        "spec.podTemplateOverrides[0].spec.volumes[0].secret.defaultMode: Invalid value",
    ),
    "a time in small letters": (
        {"runtimePatches": [{**patch(nodeSelector={"a": "b"}), "time": "2031-05-06t07:08:09z"}]},
        f"{PATCHES}[0].time: Invalid value",
    ),
    "a deadline of nothing": ({"activeDeadlineSeconds": 0}, "spec.activeDeadlineSeconds: Invalid value"),
    "a negative time to live": (
        {"ttlSecondsAfterFinished": -1},
        "spec.ttlSecondsAfterFinished: Invalid value: -1",
    ),
    "a time to live that no Go client can read": (
        {"ttlSecondsAfterFinished": 2**31},
        "spec.ttlSecondsAfterFinished: Invalid value: 2147483648",
    ),
    "a time to live in words": (
        {"ttlSecondsAfterFinished": "1h"},
        "spec.ttlSecondsAfterFinished: Invalid value",
    ),
    "an override of an unknown job": (
        {
            "podTemplateOverrides": [
                {"targetJobs": [{"name": "nowhere"}], "spec": {"nodeSelector": {"a": "b"}}}
            ]
        },
        "must not have targetJob that doesn't exist in the runtime job template",
    ),
}

TTL, ELASTIC = "spec.runPolicy.ttlSecondsAfterFinished", "spec.mlPolicy.torch.elasticPolicy"
RUNTIME_CASES: dict[str, tuple[Document, str]] = {
    "a negative time to live": ({"runPolicy": {"ttlSecondsAfterFinished": -1}}, f"{TTL}: Invalid value: -1"),
    "a time to live that no Go client can read": (
        {"runPolicy": {"ttlSecondsAfterFinished": 2**31}},
        f"{TTL}: Invalid value: 2147483648",
    ),
    "a time to live in words": ({"runPolicy": {"ttlSecondsAfterFinished": "1h"}}, f"{TTL}: Invalid value"),
    "a list of run policies": ({"runPolicy": []}, "spec.runPolicy: Invalid value"),
    "a list of elastic policies": (
        {"mlPolicy": {"torch": {"elasticPolicy": []}}},
        f"{ELASTIC}: Invalid value",
    ),
    "nodes in words": (
        {"mlPolicy": {"torch": {"elasticPolicy": {"minNodes": "x"}}}},
        f"{ELASTIC}.minNodes: Invalid value",
    ),
    "nodes that no Go client can read": (
        {"mlPolicy": {"torch": {"elasticPolicy": {"maxNodes": 2**31}}}},
        f"{ELASTIC}.maxNodes: Invalid value: 2147483648",
    ),
    "a fixed number beside an elastic policy": (
        {"mlPolicy": {"numNodes": 2, "torch": {"elasticPolicy": {"minNodes": 1}}}},
        "numNodes should not be set if torch.elasticPolicy is configured",
    ),
}


async def test_each_is_refused_with_its_field(
    admitting_manager: Running, live_client: LiveClient, namespace: str, torch_runtime: str
) -> None:
    wrong: dict[str, str] = {}
    async with admitting_manager():
        runtime = await live_client.get(ClusterTrainingRuntime, ("", torch_runtime))
        template = runtime.to_dict()["spec"]["template"]
        cases = [("TrainJob", {"runtimeRef": {"name": torch_runtime}}, *case) for case in CASES.items()]
        cases += [("TrainingRuntime", {"template": template}, *case) for case in RUNTIME_CASES.items()]
        of_cluster = "a fixed number beside an elastic policy"
        cases.append(
            ("ClusterTrainingRuntime", {"template": template}, of_cluster, RUNTIME_CASES[of_cluster])
        )
        for kind, least, name, (spec, expected) in cases:
            obj = Unstructured.wrap(
                {
                    "apiVersion": "trainer.kubeflow.org/v1alpha1",
                    "kind": kind,
                    "metadata": {"name": f"{namespace[:20]}-bad"}
                    | ({} if kind == "ClusterTrainingRuntime" else {"namespace": namespace}),
                    "spec": {**least, **spec},
                }
            )
            try:
                await live_client.create(obj, dry_run=True)
                wrong[f"{kind}: {name}"] = "admitted"
            except StatusError as error:
                if error.code not in (400, 403, 422) or expected not in str(error):
                    wrong[f"{kind}: {name}"] = f"{error.code}: {error}"
    assert wrong == {}
