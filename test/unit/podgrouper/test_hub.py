# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

import pytest
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import GVK, Object, Unstructured

from pkg.podgrouper import ENTRY_POINT_GROUP, GrouperLoadError, PluginsHub, Rules, new_plugins_hub
from pkg.podgrouper.plugins import Grouper, Reads
from pkg.podgrouper.plugins.defaultgrouper import DefaultGrouper
from pkg.podgrouper.podgroup import Metadata

WIDGET = GVK("example.com", "v1", "Widget")


class WidgetGrouper(Grouper):
    name = "Widget Grouper"

    def __init__(self, default: DefaultGrouper) -> None:
        self._default = default

    async def get_pod_group_metadata(
        self, top_owner: Unstructured, pod: Pod, *other_owners: Object
    ) -> Metadata:
        return await self._default.get_pod_group_metadata(top_owner, pod, *other_owners)


Bring = Callable[[Any], list[EntryPoint]]


@pytest.fixture
def bring(monkeypatch: pytest.MonkeyPatch) -> Bring:
    """Return a function that makes an installed package's entry point load ``factory``."""

    def make(factory: Any) -> list[EntryPoint]:
        module = ModuleType("widgets_of_others")
        module.rows = factory  # type: ignore[attr-defined]  # a module of this test
        monkeypatch.setitem(sys.modules, module.__name__, module)
        return [EntryPoint("widgets", f"{module.__name__}:rows", ENTRY_POINT_GROUP)]

    return make


def hub(found: list[EntryPoint]) -> PluginsHub:
    return new_plugins_hub(FakeClient(), found=found)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (GVK("kubeflow.org", "v1", "PyTorchJob"), "PyTorchJob Grouper"),
        (GVK("kubeflow.org", "v1alpha2", "PyTorchJob"), "Default Grouper"),
        (GVK("run.ai", "v2", "TrainingWorkload"), "SkipTopOwner Grouper"),
        (GVK("run.ai", "v2", "RunaiJob"), "Default Grouper"),
        (WIDGET, "Default Grouper"),
    ],
    ids=["its version", "another version", "any version", "a version of its own alone", "no row"],
)
def test_a_row_is_for_a_version_unless_it_is_for_all(kind: GVK, name: str) -> None:
    assert hub([]).grouper_for(kind).name == name


def test_each_set_of_rules_has_its_own_groupers() -> None:
    rows = hub([])
    job = GVK("kubeflow.org", "v1", "PyTorchJob")

    assert len({id(rows.grouper_for(job, rules)) for rules in Rules}) == len(Rules)


def test_of_a_kind_without_a_row_everything_may_be_looked_at() -> None:
    assert hub([]).reads(WIDGET) is Reads.OBJECT
    assert hub([]).reads(GVK("apps", "v1", "StatefulSet")) is Reads.METADATA


def test_groupers_of_others_come_in_by_entry_points(bring: Bring) -> None:
    found = bring(lambda default, _reader: {WIDGET: WidgetGrouper(default)})

    assert hub(found).grouper_for(WIDGET).name == "Widget Grouper"
    assert WIDGET in hub(found).kinds()


@pytest.mark.parametrize(
    ("factory", "expected"),
    [
        (
            lambda default, _reader: {GVK("", "v1", "Pod"): WidgetGrouper(default)},
            "v1, Kind=Pod already has a grouper",
        ),
        (lambda _default, _reader: {WIDGET: "a grouper"}, "not a mapping of kinds to groupers"),
        (lambda _default, _reader: 1 / 0, "division by zero"),
        (lambda _default, _reader: sys.exit(3), "SystemExit: 3"),
        (42, "'int' object is not callable"),
    ],
    ids=["a kind of ours", "no groupers", "fails", "ends the process", "no factory"],
)
def test_what_is_wrong_with_an_entry_point_is_told_with_its_name(
    bring: Bring, factory: Any, expected: str
) -> None:
    with pytest.raises(GrouperLoadError, match=expected) as caught:
        hub(bring(factory))

    assert str(caught.value).startswith("grouper widgets (widgets_of_others:rows): ")


@pytest.mark.parametrize(
    ("kind", "watched"),
    [
        (GVK("batch", "v1", "Job"), True),
        (GVK("trainer.kubeflow.org", "v1alpha1", "TrainJob"), True),
        (GVK("run.ai", "v9", "TrainingWorkload"), True),
        (GVK("serving.knative.dev", "v1", "Revision"), True),
        (GVK("grove.io", "v1alpha1", "PodClique"), True),
        (GVK("", "v1", "Secret"), False),
        (GVK("", "v1", "Pod"), False),
        (GVK("batch", "v2", "Job"), False),
        (WIDGET, False),
    ],
    ids=str,
)
def test_only_kinds_of_a_workload_that_has_a_grouper_are_watched(kind: GVK, watched: bool) -> None:
    assert hub([]).watches(kind) is watched


def test_kinds_of_groupers_of_others_are_watched(bring: Bring) -> None:
    assert hub(bring(lambda default, _reader: {WIDGET: WidgetGrouper(default)})).watches(WIDGET)
