# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A kind that is not served, and one that is denied, appear and disappear beside one that works."""

from typing import Any

import anyio
import pytest

import controller_runtime as ctrl
from controller_runtime.apis.core.v1 import ConfigMap, Secret
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Environment, apply_manifests, eventually, open_crd
from controller_runtime.machinery import GVK, Object, unstructured
from controller_runtime.machinery.errors import NotFoundError
from controller_runtime.serving import HTTPRequest

pytestmark = pytest.mark.fault
USER = "limited"
GROUP = "fault.example.org"
WIDGET = unstructured(GVK(GROUP, "v1", "Widget"))
CRD = unstructured(GVK("apiextensions.k8s.io", "v1", "CustomResourceDefinition"))
WIDGETS = open_crd(WIDGET.gvk)


def role(name: str, group: str, resource: str) -> list[dict[str, Any]]:
    """Return a ClusterRole that may read one resource, and a ClusterRoleBinding that gives it to the test's user."""
    rbac = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": [group], "resources": [resource], "verbs": ["get", "list", "watch"]}]
    subjects = [{"apiGroup": rbac, "kind": "User", "name": USER}]
    reference = {"apiGroup": rbac, "kind": "ClusterRole", "name": name}
    meta = {"apiVersion": f"{rbac}/v1", "metadata": {"name": name}}
    return [
        {**meta, "kind": "ClusterRole", "rules": rules},
        {**meta, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": subjects},
    ]


async def absent(client: LiveClient, obj: Object) -> bool:
    try:
        await client.get(type(obj), obj.key)
    except NotFoundError:
        return True
    return False


class Notes:
    """Remembers the names of the objects that it reconciled."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    async def reconcile(self, request: ctrl.Request) -> ctrl.Result:
        self.names.add(request.name)
        return ctrl.Result()


async def test_a_kind_that_is_missing_or_denied_is_named_and_heals_without_a_restart(
    control_plane: Environment, client: LiveClient, namespace: str, new_proxy: Any, figure: Any
) -> None:
    await apply_manifests(
        client, [*role("maps", "", "configmaps"), *role("widgets", GROUP, "widgets")], owner="test"
    )
    options = ctrl.Options(metrics_bind_address="0", health_probe_bind_address="127.0.0.1:0")
    proxy = await new_proxy(await control_plane.add_user(USER))
    mgr = ctrl.Manager(proxy.config, options)
    notes: dict[type[Object], Notes] = {}
    for kind in (ConfigMap, Secret, WIDGET):
        notes[kind] = Notes()
        ctrl.new_controller_managed_by(mgr).named(f"fault-{kind.gvk.kind}").for_(kind).complete(notes[kind])

    async def ready_says(text: str) -> bool:
        answer = await mgr.health_server._routes["/readyz"](HTTPRequest(path="/readyz"))
        return answer.status == 200 and text.encode() in answer.body

    async def reconciled(kind: type[Object], name: str) -> None:
        """Make an object, and wait until its controller has seen it."""
        await client.create(kind.from_dict({"metadata": {"namespace": namespace, "name": name}}))
        await eventually(lambda: name in notes[kind].names, timeout=60, reason=f"{name} was reconciled")

    async with anyio.create_task_group() as tasks:
        began = anyio.current_time()
        tasks.start_soon(mgr.start)
        await eventually(
            lambda: ready_says(f"Widget.{GROUP} is degraded"), timeout=30, reason="the missing kind is named"
        )
        await eventually(
            lambda: ready_says("Secret is degraded"), timeout=30, reason="the denied kind is named"
        )
        figure("kinds missing and denied: named", anyio.current_time() - began, at_most=5)
        await reconciled(ConfigMap, "one")

        crd = await client.create(CRD.from_dict(WIDGETS))
        await apply_manifests(client, role("secrets", "", "secrets"), owner="test")
        came = anyio.current_time()
        await reconciled(Secret, "granted")
        figure("kind granted: live", anyio.current_time() - came, at_most=30)
        await eventually(lambda: not mgr.cache.degraded(), timeout=60, reason="no kind is degraded")
        await reconciled(WIDGET, "installed")
        figure("CRD installed: live", anyio.current_time() - came, at_most=30)

        await client.delete(crd)
        gone = anyio.current_time()
        await eventually(
            lambda: ready_says("Widget"), timeout=60, reason="the kind without a CRD is named again"
        )
        figure("CRD removed: named", anyio.current_time() - gone, at_most=5)
        await reconciled(ConfigMap, "two")

        await eventually(lambda: absent(client, crd), timeout=30, reason="the CRD is deleted")
        await client.create(CRD.from_dict(WIDGETS))
        back = anyio.current_time()
        await eventually(lambda: not mgr.cache.degraded(), timeout=60, reason="no kind is degraded again")
        await reconciled(WIDGET, "again")
        figure("CRD installed again: live", anyio.current_time() - back, at_most=30)

        (binding,) = [each for each in role("secrets", "", "secrets") if "roleRef" in each]
        await client.delete(
            unstructured(GVK.parse(binding["apiVersion"], binding["kind"])).from_dict(binding)
        )
        # The server checks permissions only when a watch is opened, so the open watches must be cut.
        proxy.cut(watches=True)
        revoked = anyio.current_time()
        await eventually(
            lambda: ready_says("Secret is degraded"), timeout=30, reason="the denied kind is named again"
        )
        figure("permission revoked: named", anyio.current_time() - revoked, at_most=5)
        await reconciled(ConfigMap, "three")
        mgr.stop()
