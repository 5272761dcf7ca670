# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Kueue's placement of pods is applied after the user's, whether they are in runtimePatches or podTemplateOverrides."""

from __future__ import annotations

from typing import Any

import pytest

from pkg.apis.jobset.v1alpha2 import JobSetSpec
from pkg.apis.trainer.v1alpha1 import PodTemplateOverride, RuntimePatch
from pkg.runtime.core.overrides import with_overrides
from testkit.builders import pod_override, runtime_patch

Document = dict[str, Any]
TEMPLATE = JobSetSpec.from_dict(
    {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {}}}}]}
)
USERS = {
    "nodeSelector": {"disk": "ssd", "pool": "users"},
    "tolerations": [{"key": "users", "operator": "Exists"}],
}
KUEUES = {"nodeSelector": {"pool": "spot"}, "tolerations": [{"key": "spot", "operator": "Exists"}]}
POD_SET = {"labels": {"kueue.x-k8s.io/podset": "node"}}


OVERRIDE, PATCH = pod_override(USERS), runtime_patch("trainer.kubeflow.org/kubeflow-sdk", USERS)
PLACEMENT = pod_override(KUEUES, metadata=POD_SET)
ENTRY = runtime_patch("kueue.x-k8s.io/manager", KUEUES, pod_metadata=POD_SET)


@pytest.mark.parametrize(
    ("overrides", "patches"),
    [
        pytest.param([OVERRIDE, PLACEMENT], [], id="Kueue up to v0.16, overrides"),
        pytest.param([PLACEMENT], [PATCH], id="Kueue up to v0.16, patches"),
        pytest.param([OVERRIDE, PLACEMENT], [PATCH], id="Kueue up to v0.16, both"),
        pytest.param([PLACEMENT, OVERRIDE], [PATCH], id="Kueue up to v0.16, not the last override"),
        pytest.param([PLACEMENT, OVERRIDE], [], id="Kueue up to v0.16, not the last of overrides alone"),
        pytest.param([OVERRIDE, PLACEMENT], [ENTRY], id="after an upgrade of Kueue"),
        pytest.param([OVERRIDE], [ENTRY], id="Kueue from v0.17, overrides"),
        pytest.param([], [PATCH, ENTRY], id="Kueue from v0.17, patches"),
        pytest.param([OVERRIDE], [PATCH, ENTRY], id="Kueue from v0.17, both"),
    ],
)
def test_the_placement_of_kueue_is_applied_last(overrides: list[Document], patches: list[Document]) -> None:
    built = with_overrides(
        TEMPLATE,
        [PodTemplateOverride.from_dict(each) for each in overrides],
        [RuntimePatch.from_dict(each) for each in patches],
    )

    (job,) = built.to_dict()["replicatedJobs"]
    pod = job["template"]["spec"]["template"]
    assert pod["spec"]["nodeSelector"] == {"disk": "ssd", "pool": "spot"}
    assert pod["spec"]["tolerations"] == KUEUES["tolerations"]
    assert pod["metadata"]["labels"] == POD_SET["labels"]


def test_each_change_is_described_by_its_place_in_the_train_job() -> None:
    seen: list[str] = []
    with_overrides(
        TEMPLATE,
        [PodTemplateOverride.from_dict(each) for each in (PLACEMENT, OVERRIDE)],
        [RuntimePatch.from_dict(PATCH)],
        lambda _, description: seen.append(description),
    )

    assert seen == [
        "",
        "podTemplateOverrides[1] for node",
        "runtimePatches[0] of trainer.kubeflow.org/kubeflow-sdk",
        "podTemplateOverrides[0] for node",
    ]
