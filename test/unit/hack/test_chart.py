# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The schema of the chart's values refuses keys that it does not know, at every depth."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from hack.chart import CHART
from pkg import config

SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())


def at(*path: str) -> dict[str, Any]:
    found = SCHEMA
    for step in path:
        found = found["properties"][step]
    return found


def open_maps(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    if schema.get("additionalProperties"):
        yield path
    for name, each in schema.get("properties", {}).items():
        yield from open_maps(each, f"{path}.{name}".lstrip("."))


def test_only_the_values_of_another_chart_are_open() -> None:
    assert list(open_maps(SCHEMA)) == ["jobset"]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("podGrouper.enable", {"type": "boolean"}),
        ("tls.cipherSuites", {"type": ["array", "null"]}),
        ("clientConnection.qps", {"type": "number"}),
        ("controller.groupKindConcurrency", {"type": ["object", "null"]}),
        ("compatibilityVersion", {"type": ["string", "null"]}),
    ],
)
def test_the_configuration_has_all_its_keys(path: str, kind: dict[str, Any]) -> None:
    assert at("manager", "config", *path.split(".")) == kind


def test_a_setting_that_was_taken_out_passes_as_it_does_at_the_start() -> None:
    for path in config.RETIRED:
        assert at("manager", "config", *map(str, path)) == {}
