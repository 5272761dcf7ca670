# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Every controller that the documents define runs on a real API server, and none of its reconciles fails."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import controller_runtime as ctrl
from controller_runtime import metrics
from controller_runtime.apis.core.v1 import ConfigMap, Container, Namespace, Pod, PodSpec
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.client import MERGE, LiveClient, ignore_not_found, merge_from, raw_patch
from controller_runtime.envtest import eventually
from controller_runtime.rest import Config

pytestmark = [pytest.mark.integration, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/guides/*.md")])
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def programs(marker: str) -> Iterator[Any]:
    """Yield the Python blocks of the documents that contain ``marker``."""
    for path in PAGES:
        for number, block in enumerate(BLOCK.findall(path.read_text())):
            if marker in block:
                yield pytest.param(block, id=f"{path.relative_to(ROOT)}-{number}")


def names_of(block: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "document"}
    # asyncio.run would fail in a running loop; the unit tests run the block's own test.
    exec(compile(re.sub(r"^asyncio\.run\(.*\)$", "", block, flags=re.MULTILINE), "<document>", "exec"), names)
    return names


CONTROLLERS = list(programs(".named("))


def test_there_are_documents_with_controllers() -> None:
    pages = {str(each.id).rpartition("-")[0].rpartition("/")[2] for each in CONTROLLERS}
    assert pages >= {"README.md", "finalizers.md", "indices.md", "map-functions.md", "predicates.md"}


@pytest.mark.parametrize("block", CONTROLLERS)
async def test_a_controller_of_the_documents_reconciles_without_errors(
    block: str, rest_config: Config, live_client: LiveClient, namespace: str
) -> None:
    (controller,) = re.findall(r'\.named\("([a-z-]+)"\)', block)
    names = names_of(block)
    assert "setup" in names, "a document shows how its controller is added to a manager"
    mgr = ctrl.Manager(rest_config, ctrl.Options(metrics_bind_address="0"))
    if inspect.isawaitable(made := names["setup"](mgr)):
        await made

    def errors() -> float:
        name = "controller_runtime_reconcile_errors_total"
        return metrics.REGISTRY.get_sample_value(name, {"controller": controller}) or 0.0

    before = errors()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mgr.start)
        await mgr.elected.wait()
        # A finalizer is added under the condition that nobody else changes the object.
        patches, labels = "finalizer" not in block, controller == "labeller"
        await change_much(live_client, namespace, patches=patches, adds_labels=labels)
        mgr.stop()
    assert errors() == before


async def change_much(client: LiveClient, namespace: str, *, patches: bool, adds_labels: bool) -> None:
    """Label the Namespace, and create, change and delete ConfigMaps, most of them while the controller works on them."""
    old = await client.get(Namespace, ("", namespace))
    team = old.deep_copy()
    team.metadata.labels = {**old.labels, "example.com/team": "blue"}
    await client.patch(team, merge_from(old))

    async def one(number: int) -> None:
        metadata = ObjectMeta(namespace=namespace, name=f"c{number}", labels={"app": "web"})
        made = await client.create(ConfigMap(metadata=metadata, data={"a": "1"}))
        if adds_labels and number % 2:
            await eventually(lambda: labelled(made), reason="the controller labelled the ConfigMap")
        if patches:
            await client.patch(made, raw_patch(MERGE, b'{"data":{"a":"2"}}'))
        await client.delete(made)
        await eventually(lambda: deleted(made), reason="the ConfigMap is deleted")

    async def labelled(made: ConfigMap) -> bool:
        return len((await client.get(ConfigMap, made.key)).labels) > 1

    async def deleted(made: ConfigMap) -> bool:
        with ignore_not_found(made):
            await client.get(ConfigMap, made.key)
            return False
        return True

    async with anyio.create_task_group() as tasks:
        for number in range(40):
            tasks.start_soon(one, number)
    # A failed reconcile would be retried within this time.
    await anyio.sleep(1)


async def test_the_documented_test_of_a_running_manager_passes(
    rest_config: Config, live_client: LiveClient, namespace: str
) -> None:
    (with_manager,) = programs("async def running(")
    (with_setup,) = programs("class Stamper")
    names = names_of(with_manager.values[0])
    await names["test_a_config_map_is_stamped"](
        rest_config, live_client, namespace, names_of(with_setup.values[0])["setup"]
    )


async def test_the_guide_to_watching_returns_a_pod_that_runs(live_client: LiveClient, namespace: str) -> None:
    (block,) = programs("async def until_running")
    spec = PodSpec(containers=[Container(name="c", image="i")])
    pod = await live_client.create(Pod(metadata=ObjectMeta(namespace=namespace, name="one"), spec=spec))
    found: list[Pod] = []

    async def watch() -> None:
        found.append(await names_of(block.values[0])["until_running"](live_client, namespace, "one", 30))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        running = pod.deep_copy()
        running.status.phase = "Running"
        await live_client.status.patch(running, merge_from(pod))
    assert [each.name for each in found] == ["one"]
