# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Patches created from an earlier copy."""

from typing import Any

import msgspec
import pytest

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.client import STRATEGIC, strategic_merge_from
from controller_runtime.machinery import GVK, unstructured

VOLCANO_JOB = unstructured(GVK("batch.volcano.sh", "v1alpha1", "Job"))


def pod(*images: str) -> Pod:
    containers = [{"name": f"c{number}", "image": image} for number, image in enumerate(images)]
    metadata = {"name": "p", "namespace": "n", "resourceVersion": "7"}
    return Pod.from_dict({"metadata": metadata, "spec": {"containers": containers}})


def body(old: Pod, new: Pod, **options: Any) -> Any:
    return msgspec.json.decode(strategic_merge_from(old, **options).data(new))


def test_a_strategic_merge_patch_sends_the_items_that_changed() -> None:
    assert strategic_merge_from(pod("a")).content_type == STRATEGIC
    assert body(pod("a", "b"), pod("a", "B")) == {
        "spec": {
            "containers": [{"name": "c1", "image": "B"}],
            "$setElementOrder/containers": [{"name": "c0"}, {"name": "c1"}],
        }
    }
    assert body(pod("a"), pod("a")) == {}


def test_an_optimistic_lock_names_the_version() -> None:
    assert body(pod("a"), pod("a"), optimistic_lock=True) == {"metadata": {"resourceVersion": "7"}}


def test_an_optimistic_lock_needs_a_version() -> None:
    old = pod("a")
    old.metadata.resource_version = None
    with pytest.raises(ValueError, match=r"^n/p: an optimistic lock needs a resourceVersion$"):
        body(old, pod("a"), optimistic_lock=True)


def test_a_custom_resource_has_no_strategic_merge_patch() -> None:
    with pytest.raises(
        ValueError, match=r"Job: strategic merge patches are not supported for this kind; use merge_from$"
    ):
        strategic_merge_from(VOLCANO_JOB.from_dict({"metadata": {"name": "j"}}))
