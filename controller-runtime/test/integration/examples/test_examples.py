# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The examples, each as a process, on a real API server."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from controller_runtime.apis.coordination.v1 import Lease
from controller_runtime.apis.core.v1 import ConfigMap, Event, Namespace
from controller_runtime.client import LiveClient, merge_from
from controller_runtime.envtest import Environment, eventually
from controller_runtime.machinery import GVK, Unstructured, unstructured
from controller_runtime.machinery.errors import ForbiddenError, NotFoundError
from controller_runtime.machinery.meta import parse_time

pytestmark = [pytest.mark.integration, pytest.mark.slow]
ROOT = Path(__file__).parents[3]
HOOK_NAME = "expiring-configmaps"
HOOKS = unstructured(GVK("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration"))
MANIFEST = ROOT / "examples/config/expiring_configmaps_webhook.yaml"
LEASE = "team-namespaces.example.com"
CRD = ROOT / "examples/config/websites_crd.yaml"
WEBSITE = unstructured(GVK("example.com", "v1", "Website"))
DEPLOYMENT = unstructured(GVK("apps", "v1", "Deployment"))


def config_map(namespace: str, name: str, ttl: str) -> ConfigMap:
    metadata = {"namespace": namespace, "name": name, "annotations": {"example.com/ttl": ttl}}
    return ConfigMap.from_dict({"metadata": metadata})


async def test_a_config_map_expires_and_a_bad_ttl_is_refused(
    control_plane: Environment, live_client: LiveClient, namespace: str, start_example: Callable[..., Any]
) -> None:
    # Other tests use the same API server and must not be affected.
    serving = await control_plane.install_webhooks(MANIFEST, prefix=f"{namespace}-", namespaces=[namespace])
    start_example("expiring_configmaps", f"--port={serving.port}", f"--cert-dir={serving.cert_dir}")
    tries = 0

    async def refusal() -> ForbiddenError | None:
        nonlocal tries
        tries += 1
        try:
            await live_client.create(config_map(namespace, f"bad-{tries}", "soon"))
        except ForbiddenError as error:
            return error
        return None

    try:
        error = await eventually(refusal, timeout=20, reason="the webhook is called")
        assert error.message == (
            'admission webhook "expiring-configmaps.example.com" denied the request: '
            'metadata.annotations[example.com/ttl]: Invalid value: "soon": must be a number of seconds'
        )
        brief = await live_client.create(config_map(namespace, "brief", "2"))
        await live_client.create(config_map(namespace, "lasting", "3600"))
        await eventually(lambda: gone(live_client, namespace, "brief"), reason="the ConfigMap has expired")
        assert not await gone(live_client, namespace, "lasting")

        async def told() -> list[Event]:
            events = await live_client.list(Event, namespace=namespace)
            return [event for event in events if event.reason == "Expired"]

        (event,) = await eventually(told, reason="an event reports it")
        assert event.message == "its 2 seconds are over"
        assert event.involved_object is not None
        assert event.involved_object.name == "brief"
        made, ended = brief.metadata.creation_timestamp, event.first_timestamp
        assert parse_time(ended or "") - parse_time(made or "") >= timedelta(seconds=2)
    finally:
        await live_client.delete(HOOKS.from_dict({"metadata": {"name": f"{namespace}-{HOOK_NAME}"}}))


async def gone(client: LiveClient, namespace: str, name: str) -> bool:
    try:
        await client.get(ConfigMap, (namespace, name))
    except NotFoundError:
        return True
    return False


async def test_the_config_map_is_kept_and_another_replica_takes_over(
    live_client: LiveClient, namespace: str, start_example: Callable[..., Any]
) -> None:
    async def leader() -> str | None:
        return (await live_client.get(Lease, (namespace, LEASE))).spec.holder_identity

    async def says(team: str) -> bool:
        return (await live_client.get(ConfigMap, (namespace, "team"))).data == {"team": team}

    async def label(team: str) -> None:
        before = await live_client.get(Namespace, ("", namespace))
        after = before.deep_copy()
        after.metadata.labels = {**before.labels, "example.com/team": team}
        await live_client.patch(after, merge_from(before))

    arguments = ("team_namespaces", f"--lease-namespace={namespace}")
    first = start_example(*arguments)
    first_identity = await eventually(leader, timeout=20, reason="a replica leads")
    second = start_example(*arguments)
    await label("blue")
    await eventually(lambda: says("blue"), reason="the ConfigMap exists")
    kept = await live_client.get(ConfigMap, (namespace, "team"))
    assert [(owner.kind, owner.controller) for owner in kept.metadata.owner_references or []] == [
        ("Namespace", True)
    ]
    await live_client.delete(kept)
    await eventually(lambda: says("blue"), reason="the ConfigMap was created again")

    assert first.terminate() == 0
    await label("green")
    await eventually(lambda: says("green"), timeout=20, reason="the second replica has taken over")
    assert await leader() not in {"", first_identity}
    assert second.runs


async def test_a_website_becomes_a_deployment_and_counts_its_replicas(
    control_plane: Environment, live_client: LiveClient, namespace: str, start_example: Callable[..., Any]
) -> None:
    key = (namespace, "blog")

    async def deployment(image: str) -> Unstructured | None:
        found = await live_client.get(DEPLOYMENT, key)
        containers: Any = found.nested("spec", "template", "spec", "containers")
        return found if containers[0]["image"] == image else None

    async def ready(count: int) -> bool:
        found = await live_client.get(WEBSITE, key)
        return bool(found.nested("status") == {"readyReplicas": count})

    await control_plane.install_crds(CRD)
    start_example("websites")
    site = WEBSITE.from_dict(
        {"metadata": {"namespace": namespace, "name": "blog"}, "spec": {"image": "web:1", "replicas": 2}}
    )
    site = await live_client.create(site)
    made = await eventually(lambda: deployment("web:1"), timeout=20, reason="the Deployment exists")
    assert made.nested("spec", "replicas") == 2
    assert [owner.uid for owner in made.metadata.owner_references or []] == [site.metadata.uid]
    await eventually(lambda: ready(0), reason="the Website has a status")

    changed = made.deep_copy()
    changed["status"] = {"replicas": 2, "readyReplicas": 2}
    await live_client.status.patch(changed, merge_from(made))
    await eventually(lambda: ready(2), reason="the Website shows its Deployment's pods")

    site = await live_client.get(WEBSITE, key)
    newer = site.deep_copy()
    newer["spec"] = {"image": "web:2", "replicas": 2}
    await live_client.patch(newer, merge_from(site))
    await eventually(lambda: deployment("web:2"), reason="the Deployment has the new image")


def test_the_example_of_a_test_suite_passes_without_any_other_package(tmp_path: Path) -> None:
    """That project has no pytest-asyncio; anyio's plugin is a dependency of controller_runtime."""
    project = tmp_path / "labeller"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "examples/envtest_pytest", project, ignore=ignored)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-p", "no:asyncio", "-W", "error", "-v"]
    done = subprocess.run(
        command,
        cwd=project,
        env={**environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    assert "configfile: pyproject.toml" in done.stdout
