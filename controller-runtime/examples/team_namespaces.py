# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Namespaces of teams: each namespace labelled ``example.com/team`` gets a ConfigMap ``team`` with the team's name.

Several replicas may run: the leader reconciles, and another replica takes over when the leader ends. Changes of the
ConfigMap by other clients are reverted.
"""

import argparse
import asyncio

import controller_runtime as ctrl
from controller_runtime import log
from controller_runtime.apis.core.v1 import ConfigMap, Namespace

TEAM = "example.com/team"
OWNER = "team-namespaces"

_log = ctrl.logger_from(OWNER)


class TeamReconciler:
    """Applies the ConfigMap of a team's namespace."""

    def __init__(self, client: ctrl.Client) -> None:
        self.client = client

    async def reconcile(self, request: ctrl.Request) -> ctrl.Result:
        try:
            namespace = await self.client.get(Namespace, request)
        except ctrl.NotFoundError:
            return ctrl.Result()
        team = namespace.labels.get(TEAM)
        if team is None or namespace.metadata.deletion_timestamp:
            return ctrl.Result()
        wanted = ConfigMap(
            metadata=ctrl.ObjectMeta(namespace=namespace.name, name="team"), data={"team": team}
        )
        ctrl.set_controller_reference(namespace, wanted)
        stored = await self.client.apply(wanted, field_owner=OWNER, force=True)
        _log.info("Applied", team=team, resourceVersion=stored.metadata.resource_version)
        return ctrl.Result()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lease-namespace", default="", help="the pod's namespace by default")
    flags = parser.parse_args()
    log.configure()
    options = ctrl.Options(
        leader_election=True,
        leader_election_id="team-namespaces.example.com",
        leader_election_namespace=flags.lease_namespace,
        metrics_bind_address="0",  # replicas on one machine would use the same port
    )
    mgr = ctrl.Manager(await ctrl.load_config(), options)
    ctrl.new_controller_managed_by(mgr).for_(Namespace).owns(ConfigMap).complete(TeamReconciler(mgr.client))
    async with ctrl.setup_signal_handler() as stop:
        await mgr.start(stop)


if __name__ == "__main__":
    asyncio.run(main())
