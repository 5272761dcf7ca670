# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Every operator that the documents define runs on a real API server, under creates, updates and deletes."""

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

import controller_runtime as ctrl
from controller_runtime import metrics
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.client import MERGE, LiveClient, ignore_not_found, raw_patch
from controller_runtime.envtest import eventually
from controller_runtime.rest import Config

pytestmark = [pytest.mark.integration, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def programs(marker: str) -> Iterator[Any]:
    """Yield the Python blocks of the documents that contain ``marker``."""
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.md")]):
        for number, block in enumerate(BLOCK.findall(path.read_text())):
            if marker in block:
                yield pytest.param(block, id=f"{path.relative_to(ROOT)}-{number}")


def names_of(block: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "document"}
    # asyncio.run would fail in a running loop; the unit tests run the block's own test.
    exec(compile(re.sub(r"^asyncio\.run\(.*\)$", "", block, flags=re.MULTILINE), "<document>", "exec"), names)
    return names


def errors_of(controller: str) -> float:
    """Return the number of a controller's failed reconciles so far."""
    name = "controller_runtime_reconcile_errors_total"
    return metrics.REGISTRY.get_sample_value(name, {"controller": controller}) or 0.0


@contextmanager
def no_errors(controller: str) -> Iterator[None]:
    before = errors_of(controller)
    yield
    assert errors_of(controller) == before


OPERATORS = [
    each
    for each in programs("async def reconcile")
    if "ctrl.Object" not in each.values[0]  # an operator that defines a kind has a separate test
]


def test_there_are_operators() -> None:
    assert len(OPERATORS) >= 2


@pytest.mark.parametrize("block", OPERATORS)
async def test_an_operator_of_the_documents_makes_no_error(
    block: str, rest_config: Config, live_client: LiveClient, namespace: str
) -> None:
    names = names_of(block)
    assert "setup" in names, "an operator shows how it is added to a manager"
    controller = re.findall(r'\.named\("([a-z-]+)"\)', block)
    assert len(controller) == 1
    mgr = ctrl.Manager(rest_config, ctrl.Options(metrics_bind_address="0"))
    names["setup"](mgr)
    with no_errors(controller[0]):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mgr.start)
            await mgr.elected.wait()
            await change_much(live_client, namespace)
            mgr.stop()


async def change_much(client: LiveClient, namespace: str) -> None:
    """Create, change and delete ConfigMaps, most of them while the operator still works on them."""

    async def one(number: int) -> None:
        made = await client.create(
            ConfigMap.from_dict(
                {
                    "metadata": {"name": f"c{number}-{secrets.token_hex(2)}", "namespace": namespace},
                    "data": {"a": "1"},
                }
            )
        )
        if number % 2:
            await eventually(lambda: labelled(made), reason="the operator labelled the ConfigMap")
        await client.patch(made, raw_patch(MERGE, b'{"data":{"a":"2"}}'))
        with ignore_not_found(made):
            await client.delete(made)

    async def labelled(made: ConfigMap) -> bool:
        return bool((await client.get(ConfigMap, made.key)).labels)

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
