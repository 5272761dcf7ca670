# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The mirrored fields have the effect of their sources: a TrainJob with either or both of them has the same objects."""

from typing import Any

import pytest
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import GVK

from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainJob
from pkg.runtime import core, runtime_for
from pkg.util import generations
from pkg.webhooks import mirror
from testkit.builders import pod_override

Document = dict[str, Any]
STEP = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
POD: Document = {
    "metadata": {"labels": {"team": "a"}, "annotations": {"note": "1"}},
    "spec": {
        "serviceAccountName": "base",
        "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "volumes": [{"name": "data", "emptyDir": {}}, {"name": "cfg", "configMap": {"name": "c"}}],
        "imagePullSecrets": [{"name": "registry"}],
        "initContainers": [{"name": "warm", "image": "i", "env": [{"name": "A", "value": "1"}]}],
        "containers": [
            {"name": "node", "image": "i", "volumeMounts": [{"name": "data", "mountPath": "/data"}]},
            {"name": "side", "image": "i", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]},
        ],
    },
}
JOBS = [
    {
        "name": "fetch",
        "template": {"spec": {"template": {"spec": {"containers": [{"name": "f", "image": "i"}]}}}},
    },
    {"name": "node", "template": {"metadata": STEP, "spec": {"template": POD}}},
]
RUNTIME: Document = {
    "metadata": {"name": "runtime"},
    "spec": {
        "mlPolicy": {"numNodes": 2, "torch": {}},
        "template": {"metadata": {"labels": {"set": "1", "l": "0"}}, "spec": {"replicatedJobs": JOBS}},
    },
}


def override(*jobs: str, metadata: Document | None = None, **spec: Any) -> Document:
    return pod_override(spec, *jobs, metadata=metadata)


CASES: dict[str, Document] = {
    "labels and annotations": {"labels": {"l": "1"}, "annotations": {"n": "2"}},
    "scheduling": {
        "podTemplateOverrides": [
            override("node", nodeSelector={"pool": "p"}, tolerations=[{"key": "spot", "operator": "Exists"}]),
            override("fetch", "node", nodeSelector={"zone": "b"}, schedulingGates=[{"name": "a.io/g"}]),
        ]
    },
    "containers": {
        "podTemplateOverrides": [
            override(
                "node", containers=[{"name": "side", "env": [{"name": "Y", "value": "3"}, {"name": "Z"}]}]
            ),
            override(
                "node",
                initContainers=[{"name": "warm", "volumeMounts": [{"name": "data", "mountPath": "/w"}]}],
                containers=[
                    {"name": "side", "env": [{"name": "W", "value": "4"}, {"name": "X", "value": "5"}]},
                    {
                        "name": "node",
                        "volumeMounts": [{"name": "cfg", "mountPath": "/cfg", "readOnly": True}],
                    },
                ],
            ),
        ]
    },
    "volumes": {
        "podTemplateOverrides": [
            override("node", volumes=[{"name": "new", "emptyDir": {}}], imagePullSecrets=[{"name": "mine"}]),
            override(
                "node", volumes=[{"name": "data", "emptyDir": {"sizeLimit": "1Gi"}}], serviceAccountName=""
            ),
        ]
    },
    "metadata": {
        "podTemplateOverrides": [
            override("node", metadata={"labels": {"team": "b"}, "annotations": {"extra": "1"}}),
            override("node", metadata={"labels": {"tier": "t"}}),
        ]
    },
    "nothing": {"podTemplateOverrides": [override("node"), {"targetJobs": []}], "labels": {"l": "1"}},
}


async def objects(spec: Document) -> list[Document]:
    client = FakeClient(ClusterTrainingRuntime.from_dict(RUNTIME))
    job = TrainJob.from_dict(
        {
            "metadata": {"name": "bert", "namespace": "ns", "uid": "u"},
            "spec": {
                "runtimeRef": {
                    "apiGroup": "trainer.kubeflow.org",
                    "kind": "ClusterTrainingRuntime",
                    "name": "runtime",
                },
                "suspend": True,
                **spec,
            },
        }
    )
    runtimes = await core.new(client, client)
    made = await runtime_for(runtimes, job.spec.runtime_ref).new_objects(job)
    assert {each.gvk for each in made} == {GVK("jobset.x-k8s.io", "v1alpha2", "JobSet")}
    return [each.to_dict() for each in made]


def unordered(value: Any) -> Any:
    """Return a value with sorted lists of volumes, because the order of added items depends on the number of merges."""
    if isinstance(value, dict):
        return {
            key: sorted(below, key=lambda each: str(each["name"])) if key == "volumes" else unordered(below)
            for key, below in value.items()
        }
    return [unordered(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("case", CASES)
async def test_a_mirror_has_the_effect_of_its_sources(case: str) -> None:
    sources = CASES[case]
    job = TrainJob.from_dict({"metadata": {"name": "bert"}, "spec": {"runtimeRef": {"name": "r"}, **sources}})
    mirror.update(job, wanted=True)
    patches = [each.to_dict() for each in job.spec.runtime_patches or ()]
    assert [generations.is_mirror(each) for each in job.spec.runtime_patches or ()] == [True]
    wanted = await objects(sources)
    assert wanted != await objects({})
    assert unordered(await objects({"runtimePatches": patches})) == unordered(wanted)
    assert await objects({**sources, "runtimePatches": patches}) == wanted
