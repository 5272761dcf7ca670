# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Permitted differences from recorded answers about pods and their groups are ignored; other differences are found."""

from __future__ import annotations

from typing import Any

import pytest
from replayer import cases, compare

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "n", "uid": "u"},
    "spec": {},
}


def _case(op: str, want: dict[str, Any], **given: Any) -> cases.Case:
    return cases.Case(op, "a/b", want, {"op": op, "name": "a/b", "want": want, "pod": POD, **given})


def _refused(message: str, stage: str = "metadata", **more: Any) -> dict[str, Any]:
    return {"error": {"stage": stage, "message": message, **more}}


@pytest.mark.parametrize(
    ("want", "good", "bad"),
    [
        pytest.param(
            _refused("interface conversion", panic=True),
            _refused("group 0 is no map"),
            _refused("group 0 is no map", "owners"),
            id="after a panic any error of the same stage",
        ),
        pytest.param(
            _refused("nil", panic=True), _refused("no"), {"panic": "KeyError: a"}, id="not one of our own"
        ),
        pytest.param(
            _refused(".spec.a accessor error: 1 is of the type int64, expected string"),
            _refused(".spec.a accessor error: 1 is no string"),
            _refused(".spec.b accessor error: 1 is of the type int64, expected string"),
            id="the path of a wrong type, not its wording",
        ),
        pytest.param(
            _refused('failed: widgets.example.com "w" not found', reason="NotFound"),
            _refused('failed: widget.example.com "w" not found', reason="NotFound"),
            _refused('failed: widgets.example.com "v" not found', reason="NotFound"),
            id="which object is missing, not what its kind is called",
        ),
        pytest.param(
            _refused('widgets "w" not found', reason="NotFound"),
            _refused('widgets "w" not found', reason="NotFound"),
            _refused('widgets "w" not found'),
            id="the reason",
        ),
        pytest.param(
            _refused("owners: [{v1 A a u 0xPOINTER <nil>}]", "owners"),
            _refused("owners: [{v1 A a u true <nil>}]", "owners"),
            _refused("owners: [{v1 A a u <nil> <nil>}]", "owners"),
            id="a flag for an address",
        ),
    ],
)
def test_errors(want: dict[str, Any], good: dict[str, Any], bad: dict[str, Any]) -> None:
    assert compare.differences(_case("metadata", want), good) == []
    assert compare.differences(_case("metadata", want), bad) != []


def _step(*writes: dict[str, Any], events: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"error": None, "events": list(events), "writes": list(writes)}


UPDATE = {"verb": "update", "kind": "PodGroup", "namespace": "n", "name": "g"}
CREATE = {**UPDATE, "verb": "create"}


@pytest.mark.parametrize(
    ("want", "got", "fine"),
    [
        pytest.param([UPDATE], [], True, id="an update of upstream's that changed nothing"),
        pytest.param([UPDATE], [UPDATE], True, id="an update that changed something"),
        pytest.param([UPDATE], [{**UPDATE, "changesNothing": True}], False, id="one of ours that did not"),
        pytest.param([CREATE], [], False, id="a create is never left out"),
        pytest.param([{**UPDATE, "failed": True}], [], False, id="nor is a refused update"),
        pytest.param([{**UPDATE, "verb": "patch", "patch": {}}], [], True, id="an empty patch is"),
    ],
)
def test_writes(want: list[dict[str, Any]], got: list[dict[str, Any]], fine: bool) -> None:
    case = _case("reconcile", {"steps": [_step(*want)], "podGroups": []})

    assert (compare.differences(case, {"steps": [_step(*got)], "podGroups": []}) == []) == fine


def test_an_update_left_out_is_missed_in_what_is_stored() -> None:
    case = _case(
        "reconcile", {"steps": [_step(UPDATE)], "podGroups": [{"name": "g", "spec": {"minMember": 2}}]}
    )

    wrong = compare.differences(case, {"steps": [_step()], "podGroups": [{"name": "g", "spec": {}}]})

    assert wrong == ["podGroups[0].spec.minMember: want 2, got nothing"]


def test_a_terminating_pod_without_its_owner_has_no_event() -> None:
    terminating = {**POD, "metadata": {**POD["metadata"], "deletionTimestamp": "2001-01-01T00:00:00Z"}}
    want = {"steps": [_step(events=("Warning PodGrouperWarning gone",))]}

    assert compare.differences(_case("reconcile", want, pod=terminating), {"steps": [_step()]}) == []
    assert compare.differences(_case("reconcile", want), {"steps": [_step()]}) != []
