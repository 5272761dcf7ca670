# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The environment on real processes."""

import os

import pytest

from pkg.apis.machinery.errors import ForbiddenError
from pkg.apis.machinery.gvk import GVK
from pkg.apis.machinery.object import unstructured
from pkg.ctrl.client import LiveClient
from pkg.ctrl.envtest import Environment, EventuallyError
from pkg.ctrl.rest import Transport

pytestmark = pytest.mark.integration

POD = unstructured(GVK("", "v1", "Pod"))
CRON_TAB = unstructured(GVK("test.example.com", "v1", "CronTab"))


def crontab_crd(group: str) -> dict[str, object]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "crontabs", "singular": "crontab", "kind": "CronTab", "listKind": "CronTabList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"crontabs.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


async def test_pods_can_be_made_without_controllers(live_client: LiveClient, namespace: str) -> None:
    spec = {"containers": [{"name": "main", "image": "example.com/main"}]}
    pod = POD.from_dict({"metadata": {"name": "one", "namespace": namespace}, "spec": spec})
    await live_client.create(pod)
    assert [each.name for each in await live_client.list(POD, namespace=namespace)] == ["one"]


async def test_an_installed_crd_is_served_on_return(
    control_plane: Environment, live_client: LiveClient, namespace: str
) -> None:
    await control_plane.install_crds(crontab_crd("test.example.com"))
    await live_client.create(CRON_TAB.from_dict({"metadata": {"name": "nightly", "namespace": namespace}}))
    assert (await live_client.get(CRON_TAB, (namespace, "nightly"))).name == "nightly"


async def test_an_added_user_has_no_rights_but_those_bound_to_it(
    control_plane: Environment, namespace: str
) -> None:
    async with Transport(await control_plane.add_user("jane", ["developers"])) as transport:
        with pytest.raises(ForbiddenError, match='User "jane" cannot list resource "pods"'):
            await LiveClient(transport).list(POD, namespace=namespace)


async def test_a_crd_that_the_server_cannot_serve_is_named(control_plane: Environment) -> None:
    taken = crontab_crd("first.example.com")
    rival = crontab_crd("first.example.com")
    rival["metadata"] = {"name": "crontabz.first.example.com"}
    rival["spec"]["names"] = {"plural": "crontabz", "kind": "CronTab"}  # type: ignore[index] # a dict literal above
    await control_plane.install_crds(taken)
    with pytest.raises(EventuallyError, match=r"CRD crontabz\.first\.example\.com is established.*False"):
        await control_plane.install_crds(rival, timeout=1)


def test_state_is_readable_by_its_owner_alone(control_plane: Environment) -> None:
    for folder, _, files in os.walk(control_plane.directory):
        assert os.stat(folder).st_mode & 0o077 == 0, folder  # noqa: PTH116
        for file in files:
            assert os.stat(f"{folder}/{file}").st_mode & 0o077 == 0, file  # noqa: PTH116
