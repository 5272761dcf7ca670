# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A tenant who may create pods cannot stop the pod grouper, slow it down for others, or read anything through it."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import pytest
from controller_runtime import Manager
from controller_runtime.apis.core.v1 import Namespace, Pod
from controller_runtime.client import LiveClient
from controller_runtime.envtest import eventually
from controller_runtime.machinery import GVK

pytestmark = pytest.mark.integration

OURS: dict[str, Any] = {
    "containers": [{"name": "main", "image": "busybox"}],
    "schedulerName": "kai-scheduler",
}
JOB = GVK("batch", "v1", "Job")
SUSPENDED: dict[str, Any] = {
    "suspend": True,
    "template": {"spec": {"containers": OURS["containers"], "restartPolicy": "Never"}},
}
RunGrouper = Callable[..., AbstractAsyncContextManager[tuple[Manager, Any]]]

HOSTILE = {
    "an encoded path": {"apiVersion": "v1%2Fsecrets", "kind": "Secret"},
    "a watch": {"apiVersion": "v1%2Fpods?watch=true", "kind": "Pod"},
    "a path": {"apiVersion": "..%2F..%2Fapi/v1", "kind": "Secret"},
    "a kind of path": {"apiVersion": "v1", "kind": "../secrets"},
    "a name of path": {"apiVersion": "batch/v1", "kind": "Job", "name": "..%2F..%2Fsecrets"},
    "a group that is made up": {"apiVersion": "made-up-{number}.example.com/v1", "kind": "Widget"},
    "a version that is made up": {"apiVersion": "batch/v{number}", "kind": "Job"},
    "a kind that is made up": {"apiVersion": "v1", "kind": "Widget{number}"},
    "a secret": {"apiVersion": "v1", "kind": "Secret"},
    "a job that is missing": {"apiVersion": "batch/v1", "kind": "Job"},
}


@pytest.fixture
async def other_namespace(live_client: LiveClient, namespace: str) -> str:
    made = await live_client.create(Namespace.from_dict({"metadata": {"name": f"{namespace[:50]}-b"}}))
    return made.name


async def hostile_pod(client: LiveClient, namespace: str, number: int, reference: dict[str, str]) -> None:
    owner = {"name": f"missing-{number}", "uid": f"uid-{number}", **reference}
    owner = {key: value.replace("{number}", str(number)) for key, value in owner.items()}
    metadata = {"name": f"hostile-{number}", "namespace": namespace, "ownerReferences": [owner]}
    await client.create(Pod.from_dict({"metadata": metadata, "spec": OURS}))


@pytest.mark.timeout(180)
async def test_pods_of_one_namespace_neither_delay_another_nor_read_anything(
    live_client: LiveClient, namespace: str, other_namespace: str, make: Any, run_grouper: RunGrouper
) -> None:
    job = await make(JOB, "good", None, SUSPENDED)
    references = list(HOSTILE.values())
    began = anyio.current_time()
    async with run_grouper() as (mgr, sent):
        async with anyio.create_task_group() as tasks:
            for number in range(300):
                tasks.start_soon(
                    hostile_pod, live_client, other_namespace, number, references[number % len(references)]
                )
        await make(Pod.gvk, "good", job, OURS)

        async def grouped() -> bool:
            return "pod-group-name" in (await live_client.get(Pod, (namespace, "good"))).annotations

        await eventually(grouped, timeout=15, reason="the pod of another namespace is grouped")
        await anyio.sleep(3)
        watched = [informer.kind.gvk.kind for informer in mgr.cache.informers()]
    lasted, paths = anyio.current_time() - began, [each.path for each in sent]

    assert "Secret" not in watched
    assert not [path for path in paths if "secrets" in path and "/namespaces/" not in path]
    assert not [path for path in paths if "%" in path or "?" in path or ".." in path]
    made_up = [path for path in paths if "made-up" in path]
    assert len(made_up) <= 64
    # The first hundred failures, and then ten a second.
    live = [path for path in paths if f"/namespaces/{other_namespace}/" in path and "missing-" in path]
    assert len(live) <= 100 + 10 * lasted
