# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any


async def test_each_pod_of_a_deployment_is_a_group_that_it_owns(
    make_object: Any, make_pod: Any, group: Any
) -> None:
    deployment = make_object("apps/v1", "Deployment", "web", labels={"kai.scheduler/queue": "q"})
    replica_set = make_object("apps/v1", "ReplicaSet", "web-1", deployment)
    pod = make_pod("web-1-a", replica_set)

    metadata = await group(pod, deployment, replica_set)

    assert (metadata.name, metadata.queue) == ("pg-web-1-a-uid-web-1-a", "q")
    assert metadata.owner.to_dict() == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "web-1-a",
        "uid": "uid-web-1-a",
    }
