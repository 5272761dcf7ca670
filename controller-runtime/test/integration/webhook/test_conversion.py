# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A real API server stores one version of a kind and serves two, which our webhook converts."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

import controller_runtime as ctrl
from controller_runtime.client import LiveClient, merge_from
from controller_runtime.envtest import Environment
from controller_runtime.machinery.errors import StatusError
from ctrl_testkit.versions import Boat, BoatV1alpha1, boat_crd

pytestmark = pytest.mark.integration


@asynccontextmanager
async def both_versions(control_plane: Environment) -> AsyncIterator[None]:
    """Install the kind in both versions, and run a manager that converts between them."""
    serving = control_plane.webhook_serving
    options = ctrl.Options(
        metrics_bind_address="0",
        webhook_host=serving.host,
        webhook_port=serving.port,
        webhook_cert_dir=str(serving.cert_dir),
    )
    mgr = ctrl.Manager(control_plane.config, options)
    ctrl.new_webhook_managed_by(mgr, Boat).with_conversion(BoatV1alpha1).complete()
    await control_plane.install_crds(boat_crd(), convertible=[Boat])
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mgr.start, stop)
        await mgr.webhook_server.ready()
        yield
        stop.set()


async def test_each_version_is_read_written_and_listed(
    control_plane: Environment, live_client: LiveClient, namespace: str
) -> None:
    async with both_versions(control_plane):
        for name, rig in [("dinghy", "2"), ("sloop", "main,jib")]:
            await live_client.create(boat(namespace, name, rig))
        stored = await live_client.list(Boat, namespace=namespace)
        dinghy = stored[0]
        grown = dinghy.deep_copy()
        grown.spec.oars = 4
        await live_client.patch(grown, merge_from(dinghy))
        listed = await live_client.list(BoatV1alpha1, namespace=namespace)
    assert [each.spec.to_dict() for each in stored] == [{"oars": 2}, {"sails": ["main", "jib"]}]
    assert {each.name: each.spec.rig for each in listed} == {"dinghy": "4", "sloop": "main,jib"}
    assert [each.metadata.uid for each in listed] == [each.metadata.uid for each in stored]


async def test_the_user_sees_why_an_object_cannot_be_converted(
    control_plane: Environment, live_client: LiveClient, namespace: str
) -> None:
    async with both_versions(control_plane):
        with pytest.raises(StatusError) as raised:
            await live_client.create(boat(namespace, "raft", "?!"))
        assert not await live_client.list(Boat, namespace=namespace)
    assert f"Boat {namespace}/raft: spec.rig: '?!' is neither a number nor names" in raised.value.message


def boat(namespace: str, name: str, rig: str) -> BoatV1alpha1:
    metadata = {"namespace": namespace, "name": name}
    return BoatV1alpha1.from_dict({"metadata": metadata, "spec": {"rig": rig}})
