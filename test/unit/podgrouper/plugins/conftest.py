# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures that return the group of a pod, as the grouper makes it that the hub chooses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Object, Unstructured

from pkg.podgrouper import Rules
from pkg.podgrouper.podgroup import Metadata
from testkit.owner_world import pod_grouper

Group = Callable[..., Awaitable[Metadata]]


@pytest.fixture
def group() -> Group:
    """Return a function that returns the group of a pod in a cluster with this pod and ``objects``."""

    async def group_of(pod: Pod, *objects: Object, rules: Rules = Rules.V0_13) -> Metadata:
        cluster = FakeClient(pod, *objects)
        return await (await pod_grouper(cluster).get_pod_owners(pod, rules)).metadata(pod)

    return group_of


@pytest.fixture
def make_pod_group(make_object: Callable[..., Unstructured]) -> Callable[..., Unstructured]:
    def make(name: str, *owners: Unstructured, **spec: Any) -> Unstructured:
        return make_object("scheduling.run.ai/v2alpha2", "PodGroup", name, *owners, spec=spec)

    return make
