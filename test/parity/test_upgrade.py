# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""In a cluster with the Go manager's objects, our first reconcile of a TrainJob writes nothing but its status."""

from __future__ import annotations

import copy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from controller_runtime.reconcile import Request
from replayer import cases, compare
from replayer.world import NOW, Cluster, Recorder, decode, runtimes

from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.controller import TrainJobReconciler

RECORDED = Path(__file__).parents[1] / "testdata" / "parity" / "newobjects.json"


def identity(wire: dict[str, Any]) -> tuple[str, ...]:
    metadata = wire["metadata"]
    return wire["apiVersion"], wire["kind"], metadata.get("namespace", ""), metadata["name"]


def is_settled(case: cases.Case) -> bool:
    """Return True if the TrainJob of the case gets children, and none of them existed before."""
    wanted = {identity(wire) for wire in case.want.get("objects") or ()}
    return bool(wanted) and not wanted & {identity(wire) for wire in case.input.get("objects") or ()}


CASES = [case for case in cases.load([RECORDED]) if is_settled(case)]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
async def test_what_the_go_manager_made_is_taken_over_as_it_is(case: cases.Case) -> None:
    cluster = Cluster(case.input)
    stored = await cluster.create(TrainJob.from_dict(copy.deepcopy(case.input["trainJob"])))
    for child in map(decode, case.want["objects"]):
        for owner in child.metadata.owner_references or ():
            owner.uid = stored.metadata.uid or ""
        await cluster.create(child)
    cluster.calls.clear()
    reconciler = TrainJobReconciler(cluster, Recorder(), await runtimes(cluster), now=lambda: NOW)
    await reconciler.reconcile(Request.for_object(stored))
    sent = Counter((call.verb, call.subresource, call.kind.kind) for call in cluster.writes)
    del sent["patch", "status", "TrainJob"]  # the condition of a suspended TrainJob
    agreed = compare.AGREED.get((compare.release(case), case.op, case.name))
    if agreed is not None:
        # The TrainJob would never start or its nodes never meet, so its objects are mended while it is suspended.
        differing = {int(each.removeprefix("objects[").partition("]")[0]) for each in agreed["differences"]}
        mended = {case.want["objects"][index]["kind"] for index in differing if stored.spec.suspend}
        assert {kind for _, _, kind in sent} == mended
    else:
        assert not sent


def test_most_recorded_cases_are_tried() -> None:
    assert len(CASES) > 300
