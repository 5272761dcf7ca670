# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Every controller of the guides runs in a manager on a real API server, and none of its reconciles fails."""

import inspect
import re
from pathlib import Path
from typing import Any

import anyio
import pytest

import controller_runtime as ctrl
from controller_runtime import metrics
from controller_runtime.apis.core.v1 import ConfigMap, Container, Namespace, Pod, PodSpec
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.client import LiveClient, ignore_not_found, merge_from
from controller_runtime.envtest import eventually
from controller_runtime.rest import Config

pytestmark = [pytest.mark.integration, pytest.mark.slow]
GUIDES = Path(__file__).parents[2] / "docs" / "guides"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
CONTROLLERS = [
    pytest.param(block, re.findall(r'\.named\("([a-z-]+)"\)', block), id=path.stem)
    for path in sorted(GUIDES.glob("*.md"))
    for block in BLOCK.findall(path.read_text())
    if "new_controller_managed_by" in block and "simtest" not in block  # simulations need no server
]


def test_there_are_guides_with_controllers() -> None:
    assert {str(each.id) for each in CONTROLLERS} >= {
        "finalizers",
        "indices",
        "map-functions",
        "predicates",
        "workloads",
    }


@pytest.mark.parametrize(("block", "named"), CONTROLLERS)
async def test_a_controller_of_the_guides_reconciles_without_errors(
    block: str, named: list[str], rest_config: Config, live_client: LiveClient, namespace: str
) -> None:
    (controller,) = named
    names: dict[str, object] = {"__name__": "document"}
    # asyncio.run would fail in a running loop; the unit tests run the block's own test.
    exec(compile(re.sub(r"^asyncio\.run\(.*\)$", "", block, flags=re.MULTILINE), "<guide>", "exec"), names)
    mgr = ctrl.Manager(rest_config, ctrl.Options(metrics_bind_address="0"))
    setup = names["setup"]
    assert callable(setup)
    if inspect.isawaitable(made := setup(mgr)):
        await made

    def errors() -> float:
        name = "controller_runtime_reconcile_errors_total"
        return metrics.REGISTRY.get_sample_value(name, {"controller": controller}) or 0.0

    before = errors()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mgr.start)
        await mgr.elected.wait()
        await change(live_client, namespace, wait_for_label="example.com/team" in block)
        mgr.stop()
    assert errors() == before


async def test_the_guide_to_watching_returns_a_pod_that_runs(live_client: LiveClient, namespace: str) -> None:
    (block,) = [
        each for each in BLOCK.findall((GUIDES / "watching.md").read_text()) if "until_running" in each
    ]
    names: dict[str, Any] = {"__name__": "document"}
    exec(compile(block, "<guide>", "exec"), names)
    pod = await live_client.create(
        Pod(
            metadata=ObjectMeta(namespace=namespace, name="one"),
            spec=PodSpec(containers=[Container(name="c", image="i")]),
        )
    )
    found: list[Pod] = []

    async def watch() -> None:
        found.append(await names["until_running"](live_client, namespace, "one", 30))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        running = pod.deep_copy()
        running.status.phase = "Running"
        await live_client.status.patch(running, merge_from(pod))
    assert [each.name for each in found] == ["one"]


async def change(client: LiveClient, namespace: str, *, wait_for_label: bool) -> None:
    """Create a ConfigMap, label its Namespace, delete the ConfigMap, and wait until it no longer exists."""
    metadata = ObjectMeta(namespace=namespace, name="one", labels={"app": "web"})
    made = await client.create(ConfigMap(metadata=metadata))
    old = await client.get(Namespace, ("", namespace))
    team = old.deep_copy()
    team.metadata.labels = {**old.labels, "example.com/team": "blue"}
    await client.patch(team, merge_from(old))

    async def labelled() -> bool:
        return (await client.get(ConfigMap, made.key)).labels.get("example.com/team") == "blue"

    async def deleted() -> bool:
        found: list[ConfigMap] = []
        with ignore_not_found(made):
            found.append(await client.get(ConfigMap, made.key))
        return not found

    if wait_for_label:
        await eventually(labelled, reason="the ConfigMap has the Namespace's label")
    await client.delete(made)
    await eventually(deleted, reason="the ConfigMap is deleted")
