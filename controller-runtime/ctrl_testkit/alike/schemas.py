# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Objects that do not match the schema of their CustomResourceDefinition."""

from typing import Any, Final

from controller_runtime.client import MERGE, LiveClient, raw_patch

from .world import RAW_PLANET, Observation, observe, planet, strict

_WRONG: list[dict[str, Any]] = [
    {},
    {"size": 0},
    {"size": 6},
    {"size": "1"},
    {"size": 1.5},
    {"size": True},
    {"size": 1, "colour": "blue"},
    {"size": 1, "code": "a"},
    {"size": 1, "code": "abcde"},
    {"size": 1, "code": "ABC"},
    {"size": 1, "parts": [{"name": "a"}, {}]},
    {"size": 1, "parts": [{"name": "a"}, {"name": "b"}, {"name": "c"}]},
    {"size": 1, "parts": {"name": "a"}},
    {"size": 1, "port": True},
    {"size": 1, "by_name": {"a": 1, "b": 2}},
    {"size": 1, "by_name": {"a": "1"}},
]
_RIGHT: list[dict[str, Any]] = [
    {"size": 1, "port": "http"},
    {"size": 1, "port": 80, "ratio": 2},
    {"size": 2, "none": None, "colour": "red", "code": "ab", "unknown": 1},
]


async def a_schema_refuses_wrong_objects(c: LiveClient, ns: str) -> list[Observation]:
    return [await observe(c.create(strict(ns, spec=spec))) for spec in _WRONG]


async def a_schema_admits_right_objects(c: LiveClient, ns: str) -> list[Observation]:
    return [await observe(c.create(strict(ns, spec=spec), dry_run=True)) for spec in _RIGHT]


async def a_schema_names_the_type_of_a_field(c: LiveClient, ns: str) -> list[Observation]:
    return [await observe(c.create(planet(ns, RAW_PLANET, mass="heavy")))]


async def a_schema_refuses_wrong_changes(c: LiveClient, ns: str) -> list[Observation]:
    await c.create(strict(ns, spec={"size": 1}))
    patch = raw_patch(MERGE, b'{"spec":{"size":9}}')
    applied = strict(ns, spec={"size": 7})
    return [
        await observe(c.patch(strict(ns), patch)),
        await observe(c.apply(applied, field_owner="me", force=True)),
        await observe(c.update(strict(ns, spec={"size": -1}))),
    ]


CONDITION: Final = {
    "type": "Ready",
    "status": "True",
    "reason": "Done",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


async def a_condition_must_be_complete(c: LiveClient, ns: str) -> list[Observation]:
    await c.create(strict(ns, spec={"size": 1}))
    wrong: list[dict[str, Any]] = [
        CONDITION,
        {**CONDITION, "reason": ""},
        {**CONDITION, "reason": "not a word"},
        {**CONDITION, "status": "Yes"},
        {name: value for name, value in CONDITION.items() if name != "lastTransitionTime"},
        {name: value for name, value in CONDITION.items() if name != "message"},
    ]
    return [
        await observe(c.status.apply(strict(ns, status={"conditions": [each]}), field_owner="me"))
        for each in wrong
    ]


async def a_condition_may_occur_only_once(c: LiveClient, ns: str) -> list[Observation]:
    made = await c.create(strict(ns, spec={"size": 1}))
    made.status = {"conditions": [CONDITION, {**CONDITION, "status": "False"}]}
    return [await observe(c.status.update(made))]
