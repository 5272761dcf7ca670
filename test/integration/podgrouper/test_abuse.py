# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A tenant who may create pods cannot stop the pod grouper, slow it down for others, or read anything through it."""

import contextlib
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import pytest
from controller_runtime import Manager
from controller_runtime.apis.core.v1 import Event, Namespace, Pod
from controller_runtime.client import MERGE, LiveClient, raw_patch
from controller_runtime.envtest import eventually
from controller_runtime.machinery import GVK, Unstructured, metadata_only, unstructured
from controller_runtime.rest import AnswerError

from pkg.apis.kai.v2alpha2 import PodGroup
from pkg.podgrouper.regrouping import PERIOD, PORTION

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
        watched = [informer.kind.gvk.kind for informer in mgr.cache._informers.values()]
    lasted = anyio.current_time() - began

    assert "Secret" not in watched
    assert not [path for path in sent.paths if "secrets" in path and "/namespaces/" not in path]
    assert not [path for path in sent.paths if "%" in path or "?" in path or ".." in path]
    made_up = [path for path in sent.paths if "made-up" in path]
    assert len(made_up) <= 64
    # The first hundred failures, and then ten a second.
    live = [path for path in sent.paths if f"/namespaces/{other_namespace}/" in path and "missing-" in path]
    assert len(live) <= 100 + 10 * lasted


@pytest.mark.timeout(300)
async def test_edits_of_an_owner_of_many_pods_and_deletions_of_its_group_do_not_delay_another_namespace(
    live_client: LiveClient, namespace: str, other_namespace: str, make: Any, run_grouper: RunGrouper
) -> None:
    job = await make(JOB, "good", None, SUSPENDED)
    rival = Unstructured.wrap(
        {
            "apiVersion": JOB.api_version,
            "kind": JOB.kind,
            "metadata": {"name": "rival", "namespace": other_namespace},
            "spec": SUSPENDED,
        }
    )
    rival = await live_client.create(rival)
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "rival", "uid": rival.metadata.uid}

    async def make_pod(number: int) -> None:
        metadata = {"name": f"p-{number}", "namespace": other_namespace, "ownerReferences": [reference]}
        await live_client.create(Pod.from_dict({"metadata": metadata, "spec": OURS}))

    async with run_grouper(rules="v0.17") as (_, sent):
        async with anyio.create_task_group() as tasks:
            for number in range(3 * PORTION):
                tasks.start_soon(make_pod, number)

        async def all_grouped() -> bool:
            pods = await live_client.list(Pod, namespace=other_namespace)
            return all("pod-group-name" in pod.annotations for pod in pods)

        await eventually(all_grouped, timeout=180, reason="the rival's pods are grouped")
        sent.clear()
        began = anyio.current_time()
        for number in range(60):
            body = b'{"metadata":{"labels":{"n":"%d"}}}' % number
            await live_client.patch(rival, raw_patch(MERGE, body))
            if number % 10 == 0:
                await live_client.delete_all_of(PodGroup, namespace=other_namespace)
            await anyio.sleep(0.05)
        await make(Pod.gvk, "good", job, OURS)

        async def grouped() -> bool:
            return "pod-group-name" in (await live_client.get(Pod, (namespace, "good"))).annotations

        await eventually(grouped, timeout=10, reason="the pod of another namespace is grouped")

        async def is_current() -> bool:
            groups = list(await live_client.list(PodGroup, namespace=other_namespace))
            return [each.labels.get("n") for each in groups] == ["59"]

        await eventually(is_current, timeout=30, reason="the last edit has reached the group")
        lasted = anyio.current_time() - began

    # Two writes of the group for each period, and three for each of the six deletions, for any number of edits and pods.
    writes = sent["PUT", "podgroups"] + sent["POST", "podgroups"]
    assert writes <= 2 * (lasted / PERIOD + 1) + 3 * 6, (writes, lasted)


async def test_classes_are_made_for_kinds_of_the_server_alone(
    live_client: LiveClient, namespace: str, make: Any, grouped: Any, run_grouper: RunGrouper
) -> None:
    async with run_grouper():
        await make(Pod.gvk, "good", await make(JOB, "good", None, SUSPENDED), OURS)
        await grouped(1)
        before = (unstructured.cache_info().misses, metadata_only.cache_info().misses)
        for number in range(50):
            reference = {"apiVersion": f"made-up-{number}.example.com/v1", "kind": "Widget"}
            await hostile_pod(live_client, namespace, number, reference)
        await make(Pod.gvk, "better", await make(JOB, "better", None, SUSPENDED), OURS)
        await grouped(2)
        await anyio.sleep(1)

    assert (unstructured.cache_info().misses, metadata_only.cache_info().misses) == before


async def wide_pod(client: LiveClient, namespace: str, name: str, tolerations: int) -> None:
    spec = {**OURS, "tolerations": [{"key": "k", "operator": "Exists"}] * tolerations}
    metadata = {"name": name, "namespace": namespace}
    with contextlib.suppress(AnswerError):  # raised for the answer, which is as wide
        await client.create(Pod.from_dict({"metadata": metadata, "spec": spec}))


async def test_a_pod_that_is_too_wide_to_be_decoded_has_an_event(
    live_client: LiveClient, namespace: str, run_grouper: RunGrouper
) -> None:
    async with run_grouper():
        await wide_pod(live_client, namespace, "too-wide", 31_000)

        async def reported() -> bool:
            events = await live_client.list(Event, namespace=namespace)
            about = [each for each in events if each.reason == "PodGrouperWarning"]
            return any("too-wide: " in (each.message or "") for each in about)

        await eventually(reported, timeout=30, reason="the pod has an event")
