# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Factories of pods and of their owners, and the grouper's results for them with an in-memory client."""

from __future__ import annotations

from typing import Any

from controller_runtime import client
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Object, Unstructured

from pkg.podgrouper import PodReconciler, Rules, Settings
from pkg.podgrouper.podgroup import Handler, Metadata
from pkg.podgrouper.servedrules import fixed
from testkit.owner_world import Recorder, pod_grouper, reference


def make_object(
    api_version: str, kind: str, name: str, *owners: Unstructured, spec: Any = None, **metadata: Any
) -> Unstructured:
    """Return an object in the namespace ``team-a``, by default with a UID that is made of its name."""
    data = {"apiVersion": api_version, "kind": kind, "metadata": _metadata(name, owners, metadata)}
    return Unstructured.wrap(data if spec is None else {**data, "spec": spec})


def make_pod(name: str, *owners: Unstructured, spec: Any = None, **metadata: Any) -> Pod:
    """Return a pod of KAI's scheduler with one container, with metadata as :func:`make_object` sets it."""
    whole = {"schedulerName": "kai-scheduler", "containers": [{"name": "main"}], **(spec or {})}
    return Pod.from_dict({"metadata": _metadata(name, owners, metadata), "spec": whole})


def _metadata(name: str, owners: tuple[Unstructured, ...], more: dict[str, Any]) -> dict[str, Any]:
    references = [reference(owner).to_dict() for owner in owners]
    named = {"name": name, "namespace": "team-a", "uid": f"uid-{name}", **more}
    return {**named, "ownerReferences": references} if references else named


def make_pod_group(name: str, *owners: Unstructured, **spec: Any) -> Unstructured:
    """Return a PodGroup of KAI."""
    return make_object("scheduling.run.ai/v2alpha2", "PodGroup", name, *owners, spec=spec)


async def group_of(pod: Pod, *objects: Object, rules: Rules = Rules.V0_13) -> Metadata:
    """Return the group of a pod in a cluster with this pod and ``objects``."""
    cluster = FakeClient(pod, *objects)
    return await (await pod_grouper(cluster).get_pod_owners(pod, rules)).metadata(pod)


def sub_group_of(metadata: Metadata, pod: str = "p") -> str | None:
    """Return the name of the subgroup of a pod."""
    found = metadata.find_sub_group_for_pod("team-a", pod)
    return None if found is None else found.name


def make_reconciler(
    client_: client.Client,
    options: Settings | None = None,
    rules: Rules = Rules.V0_13,
    *,
    recorder: Recorder | None = None,
) -> PodReconciler:
    """Return the reconciler of pods with our groupers only."""
    options, recorder = options or Settings(), recorder or Recorder()
    keys = {"node_pool_key": options.node_pool_label_key, "queue_key": "kai.scheduler/queue"}
    handler = Handler(client_, client_, **keys)
    return PodReconciler(client_, recorder, pod_grouper(client_), handler, options, rules=fixed(rules))
