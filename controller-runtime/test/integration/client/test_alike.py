# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The in-memory client behaves like a real API server: the same calls are sent to both, and the results are compared.

A result is the whole object, or the error with its class, code, reason, message and causes. The cases of
``alike.differences`` are the known differences; a case that no longer differs must leave that module.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from controller_runtime import rest
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Environment, eventually
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Object, unstructured
from ctrl_testkit import combined
from ctrl_testkit.alike import CASES, differences
from ctrl_testkit.alike.world import (
    CRD,
    CRDS,
    RAW_PLANET,
    RAW_WIDGET,
    Gadget,
    cases_of,
    comparable,
    recorded,
)

pytestmark = pytest.mark.integration
DIFFERENT: Final = cases_of(differences)


@pytest.fixture
def memory() -> Callable[[], FakeClient]:
    """Return a function that creates an empty in-memory client for the same kinds."""
    return lambda: FakeClient(crds=CRDS)


@pytest.fixture
async def served(live_client: LiveClient) -> LiveClient:
    """A client of a server that serves the kinds above."""
    for each in CRDS:
        await live_client.apply(CRD.from_dict(each), field_owner="test")
    for kind in (RAW_WIDGET, unstructured(Gadget.gvk), RAW_PLANET):

        async def listed(kind: type[Object] = kind) -> list[Any] | None:
            try:
                return [await live_client.list(kind)]
            except rest.NoKindMatchError:
                live_client.mapper.reset()
                return None

        await eventually(listed, reason=f"{kind.gvk} is served")
    return live_client


@pytest.mark.parametrize("name", CASES)
async def test_memory_answers_as_a_server(
    name: str, served: LiveClient, namespace: str, memory: Callable[[], FakeClient]
) -> None:
    found = await CASES[name](served, namespace)
    fake = comparable(await CASES[name](memory(), namespace))
    assert fake == comparable(found)
    if path := os.environ.get("ALIKE_RECORD"):
        record(Path(path), name, recorded(found, namespace))


def record(path: Path, name: str, result: Any) -> None:
    """Write a result into the file of recorded results, which has one line for each case."""
    results = json.loads(path.read_text()) | {name: result}
    lines = (
        f"{json.dumps(key)}: {json.dumps(results[key], separators=(',', ':'))}" for key in sorted(results)
    )
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


@pytest.mark.parametrize("name", DIFFERENT)
async def test_memory_differs_from_a_server_where_documented(
    name: str, served: LiveClient, namespace: str, memory: Callable[[], FakeClient]
) -> None:
    real = comparable(await DIFFERENT[name](served, namespace))
    assert comparable(await DIFFERENT[name](memory(), namespace)) != real


async def test_a_server_says_the_same_about_alternatives_and_combinations(
    control_plane: Environment, live_client: LiveClient, namespace: str
) -> None:
    await control_plane.install_crds(combined.COMBINED_CRD)
    said = [await combined.problem_of(live_client, namespace, spec) for spec, _ in combined.CASES]
    assert said == [problem for _, problem in combined.CASES]
