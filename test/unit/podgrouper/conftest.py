# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures that make pods, owners, and a grouper with an in-memory client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from controller_runtime import client
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import Unstructured

from pkg.podgrouper import PodGrouper, PodReconciler, Rules, Settings
from pkg.podgrouper.ownercache import OwnerCache
from pkg.podgrouper.podgroup import Handler
from pkg.podgrouper.servedrules import fixed
from testkit.owner_world import Clock, DirectClient, OwnerServer, Recorder, pod_grouper

MakeObject = Callable[..., Unstructured]
MakePod = Callable[..., Pod]


def _metadata(name: str, owners: tuple[Unstructured, ...], more: dict[str, Any]) -> dict[str, Any]:
    references = [
        {
            "apiVersion": owner.gvk.api_version,
            "kind": owner.gvk.kind,
            "name": owner.name,
            "uid": owner.metadata.uid,
        }
        for owner in owners
    ]
    named = {"name": name, "namespace": "team-a", "uid": f"uid-{name}", **more}
    return {**named, "ownerReferences": references} if references else named


@pytest.fixture
def clock() -> Clock:
    """Return a clock that the test sets."""
    return Clock()


@pytest.fixture
def make_object() -> MakeObject:
    def make(
        api_version: str, kind: str, name: str, *owners: Unstructured, spec: Any = None, **metadata: Any
    ) -> Unstructured:
        data = {"apiVersion": api_version, "kind": kind, "metadata": _metadata(name, owners, metadata)}
        return Unstructured.wrap(data if spec is None else {**data, "spec": spec})

    return make


@pytest.fixture
def make_pod() -> MakePod:
    def make(name: str, *owners: Unstructured, spec: Any = None, **metadata: Any) -> Pod:
        return Pod.from_dict(
            {
                "metadata": _metadata(name, owners, metadata),
                "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main"}], **(spec or {})},
            }
        )

    return make


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def make_grouper() -> Callable[[client.Client], PodGrouper]:
    return pod_grouper


@pytest.fixture
def make_reconciler(
    recorder: Recorder, make_grouper: Callable[[client.Client], PodGrouper]
) -> Callable[..., PodReconciler]:
    def make(
        client_: client.Client, options: Settings | None = None, rules: Rules = Rules.V0_13
    ) -> PodReconciler:
        options = options or Settings()
        handler = Handler(
            client_,
            client_,
            node_pool_key=options.node_pool_label_key,
            queue_key="kai.scheduler/queue",
        )
        return PodReconciler(client_, recorder, make_grouper(client_), handler, options, rules=fixed(rules))

    return make


@pytest.fixture
def cluster() -> OwnerServer:
    return OwnerServer()


@pytest.fixture
def owners(cluster: OwnerServer) -> OwnerCache:
    return OwnerCache(DirectClient(cluster), cluster.watched, cluster, clock=lambda: cluster.now)
