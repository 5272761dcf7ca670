# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The environment on real processes."""

import dataclasses
import os
from typing import Any

import anyio
import pytest

from controller_runtime import webhook
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Environment, EventuallyError, apply_manifests, eventually
from controller_runtime.machinery import GVK, field, unstructured
from controller_runtime.machinery.errors import ForbiddenError
from controller_runtime.rest import Impersonation, Transport

pytestmark = pytest.mark.integration

POD = unstructured(GVK("", "v1", "Pod"))
HOOKS = unstructured(GVK("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration"))
SelfSubjectReview = unstructured(GVK("authentication.k8s.io", "v1", "SelfSubjectReview"))
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


def reader_of_pods(namespace: str, account: str) -> list[dict[str, Any]]:
    api, metadata = "rbac.authorization.k8s.io", {"namespace": namespace, "name": account}
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    return [
        {"apiVersion": f"{api}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]},
        {
            "apiVersion": f"{api}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": api, "kind": "Role", "name": account},
            "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": account}],
        },
    ]


def hooks(name: str, path: str) -> dict[str, Any]:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
    hook = {
        "name": "no.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"service": {"namespace": "system", "name": "webhooks", "path": path}},
        "rules": [rule],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [hook],
    }


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


async def test_a_service_account_has_the_rights_that_are_bound_to_it(
    control_plane: Environment, live_client: LiveClient, namespace: str
) -> None:
    config = await control_plane.add_service_account(namespace, "robot")
    again = await control_plane.add_service_account(namespace, "robot", expiration_seconds=600)
    assert config.namespace == namespace
    name = f"system:serviceaccount:{namespace}:robot"
    async with Transport(config) as transport, Transport(again) as other:
        for each in (transport, other):
            with pytest.raises(ForbiddenError, match=f'User "{name}" cannot list resource "pods"'):
                await LiveClient(each).list(POD, namespace=namespace)
        await apply_manifests(live_client, reader_of_pods(namespace, "robot"))

        async def may() -> bool:
            try:
                return await LiveClient(transport).list(POD, namespace=namespace) == []
            except ForbiddenError:
                return False

        await eventually(may, reason="the service account has its permissions")


async def test_an_administrator_may_act_as_somebody_else(control_plane: Environment, namespace: str) -> None:
    config = dataclasses.replace(control_plane.config, impersonate=Impersonation("jane", groups=("a", "b")))
    async with Transport(config) as transport:
        with pytest.raises(ForbiddenError, match='User "jane" cannot list resource "pods"'):
            await LiveClient(transport).list(POD, namespace=namespace)
        review = await LiveClient(transport).create(SelfSubjectReview())
    assert review.nested("status", "userInfo", "groups") == ["a", "b", "system:authenticated"]


async def test_installed_webhooks_are_asked_where_the_environment_says(
    control_plane: Environment, live_client: LiveClient, namespace: str
) -> None:
    serving = await control_plane.install_webhooks(
        hooks("no", "/no"), prefix=f"{namespace}-", namespaces=[namespace]
    )
    assert serving is control_plane.webhook_serving

    class No(webhook.CustomValidator[ConfigMap]):
        async def validate_create(self, obj: ConfigMap) -> list[str]:
            raise field.ErrorList([field.forbidden(field.Path("data"), "no")]).to_aggregate() or ValueError

        async def validate_update(self, old: ConfigMap, new: ConfigMap) -> list[str]:
            return []

        async def validate_delete(self, obj: ConfigMap) -> list[str]:
            return []

    server = webhook.Server(serving.host, serving.port, serving.cert_dir)
    server.register("/no", webhook.ValidatorHandler(ConfigMap, No()))
    made = ConfigMap.from_dict({"metadata": {"namespace": namespace, "generateName": "x-"}})

    async def refusal() -> str:
        try:
            await live_client.create(made)
        except ForbiddenError as error:
            return error.message
        return ""

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.start)
        await server.ready()
        answer = await eventually(refusal, timeout=20, reason="the webhook is called")
        assert answer == 'admission webhook "no.example.com" denied the request: data: Forbidden: no'
        tasks.cancel_scope.cancel()
    await live_client.delete(HOOKS.from_dict({"metadata": {"name": f"{namespace}-no"}}))


async def test_a_file_without_webhooks_is_no_webhook_configuration(control_plane: Environment) -> None:
    with pytest.raises(ValueError, match="no webhook configuration"):
        await control_plane.install_webhooks(crontab_crd("none.example.com"))


async def test_a_crd_that_the_server_cannot_serve_is_named(control_plane: Environment) -> None:
    taken = crontab_crd("first.example.com")
    rival = crontab_crd("first.example.com")
    rival["metadata"] = {"name": "crontabz.first.example.com"}
    rival["spec"]["names"] = {"plural": "crontabz", "kind": "CronTab"}  # type: ignore[index] # a dict literal above
    await control_plane.install_crds(taken)
    with pytest.raises(EventuallyError, match=r"CRD crontabz\.first\.example\.com is established.*False"):
        await control_plane.install_crds(rival, timeout=5)


def test_state_is_readable_by_its_owner_alone(control_plane: Environment) -> None:
    for folder, _, files in os.walk(control_plane.directory):
        assert os.stat(folder).st_mode & 0o077 == 0, folder  # noqa: PTH116
        for file in files:
            assert os.stat(f"{folder}/{file}").st_mode & 0o077 == 0, file  # noqa: PTH116
