# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A manager that, while it leads, patches the ConfigMaps of a namespace five times a second.

Arguments: kubeconfig, namespace, and the user agent by which the tests find the manager in the audit log.
"""

import sys
from datetime import timedelta

import anyio

import controller_runtime as ctrl
from controller_runtime import rest
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.client import Client, merge_from


class Worker:
    """Counts up in an annotation, and asks to be called again after 0.2 s."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._count = 0

    async def reconcile(self, request: ctrl.Request) -> ctrl.Result:
        work = await self._client.get(ConfigMap, request)
        before = work.deep_copy()
        self._count += 1
        work.metadata.annotations = {**work.annotations, "count": str(self._count)}
        await self._client.patch(work, merge_from(before))
        return ctrl.Result(requeue_after=timedelta(seconds=0.2))


async def main(kubeconfig: str, namespace: str, name: str) -> None:
    config = await rest.load_config(kubeconfig)
    config.user_agent = name
    options = ctrl.Options(
        metrics_bind_address="0",
        cache=ctrl.cache.Options(default_namespaces=(namespace,)),
        leader_election=True,
        leader_election_id="lock",
        leader_election_namespace=namespace,
    )
    mgr = ctrl.Manager(config, options)
    (
        ctrl.new_controller_managed_by(mgr)
        .for_(ConfigMap)
        .with_event_filter(
            ctrl.predicate.Funcs(update=lambda _: False)
        )  # the events of its own writes must not start further reconciles
        .complete(Worker(mgr.client))
    )
    async with ctrl.setup_signal_handler() as stop:
        await mgr.start(stop)


if __name__ == "__main__":
    _, kubeconfig, namespace, name = sys.argv
    anyio.run(main, kubeconfig, namespace, name)
