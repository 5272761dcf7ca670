# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A class decodes what its CustomResourceDefinition admits, and writes nothing else, for every type of field."""

import random
from typing import Any

import msgspec
import pydantic
import pytest

from controller_runtime.apis.machinery.base import JSON
from controller_runtime.apis.machinery.crd_schema import custom_resource_definition
from controller_runtime.apis.machinery.errors import InvalidError
from controller_runtime.apis.machinery.object import Object, unstructured
from controller_runtime.client import LiveClient, dry_run
from controller_runtime.envtest import Environment
from ctrl_testkit.crdtypes import FIELDS, Field, kind_with

pytestmark = pytest.mark.integration

KINDS = {field.name: kind_with(field, number) for number, field in enumerate(FIELDS)}
VALUES = {msgspec.json.encode(each): each for field in FIELDS for each in (*field.good, *field.bad)}


@pytest.fixture(scope="module")
def seed() -> int:
    return 1


async def admitted(client: LiveClient, kind: type[Object], namespace: str, value: JSON) -> bool:
    """Return True if the API server takes an object with the value."""
    made = unstructured(kind.gvk).from_dict(
        {"metadata": {"name": "a", "namespace": namespace}, "spec": {"value": value}}
    )
    try:
        await dry_run(client).create(made)
    except InvalidError:
        return False
    return True


def decoded(kind: type[Object], value: JSON) -> Any:
    """Return the object with the value; None if the class refuses it."""
    try:
        return kind.from_dict({"spec": {"value": value}})
    except pydantic.ValidationError:
        return None


async def test_class_and_server_agree(
    control_plane: Environment, live_client: LiveClient, namespace: str, seed: int
) -> None:
    for kind in KINDS.values():
        await control_plane.install_crds(custom_resource_definition(kind))
    wrong = []
    rng = random.Random(seed)
    for field in FIELDS:
        kind = KINDS[field.name]
        wrong += await _disagreements(live_client, kind, namespace, field, rng.sample([*VALUES.values()], 40))
    assert not wrong, "\n".join(wrong)


async def _disagreements(
    client: LiveClient, kind: type[Object], namespace: str, field: Field, others: list[JSON]
) -> list[str]:
    """Return the values that are not taken as the field says, or by one of class and server alone."""
    found = []
    known = [(each, True) for each in field.good] + [(each, False) for each in field.bad]
    for value, wanted in (*known, *((each, None) for each in others)):
        server = await admitted(client, kind, namespace, value)
        obj = decoded(kind, value)
        # A class may take more, as long as it writes it as the server does: it rounds quantities, and knows more times.
        if (server and obj is None) or (wanted is not None and {wanted} != {server, obj is not None}):
            found.append(f"{field.name} {value!r}: server {server}, class {obj is not None}, wanted {wanted}")
        elif obj is not None and not await admitted(
            client, kind, namespace, obj.to_dict()["spec"].get("value")
        ):
            found.append(f"{field.name} {value!r}: the server refuses what the class writes")
    return found
