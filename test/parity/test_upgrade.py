# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A cluster full of what the Go manager made: our first look at each TrainJob sends nothing."""

from __future__ import annotations

import copy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from replayer import cases
from replayer.world import NOW, Cluster, Recorder, decode, runtimes

from pkg.apis.machinery.object import Object
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.controller import TrainJobReconciler
from pkg.ctrl.reconcile import Request

RECORDED = Path(__file__).parents[1] / "testdata" / "parity" / "newobjects.json"
CASES = [case for case in cases.load([RECORDED]) if case.want.get("objects")]


def children(case: cases.Case) -> list[Object]:
    """What the Go manager would have applied, as an API server keeps it."""
    found = []
    for number, wire in enumerate(copy.deepcopy(case.want["objects"])):
        wire["metadata"]["uid"] = f"00000000-0000-0000-0000-{number:012}"
        found.append(decode(wire))
    return found


def writes(cluster: Cluster) -> Counter[tuple[str, str]]:
    return Counter((call.verb, call.kind.kind) for call in cluster.writes)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
async def test_what_the_go_manager_made_is_taken_over_as_it_is(case: cases.Case) -> None:
    wanted: dict[str, Any] = {**case.input, "objects": case.input.get("objects") or []}
    cluster = Cluster(wanted)
    train_job = TrainJob.from_dict(copy.deepcopy(case.input["trainJob"]))
    for obj in (train_job, *children(case)):
        if not any(existing.gvk == obj.gvk and existing.key == obj.key for existing in map(decode, wanted["objects"])):
            await cluster.create(obj)
    stored = await cluster.get(TrainJob, train_job.key)
    for child in map(decode, case.want["objects"]):
        live = await cluster.get(type(child), child.key)
        for owner in live.metadata.owner_references or ():
            owner.uid = stored.metadata.uid
        await cluster.update(live)
    cluster.calls.clear()
    reconciler = TrainJobReconciler(cluster, Recorder(), await runtimes(cluster), now=lambda: NOW)
    await reconciler.reconcile(Request.for_object(stored))
    sent = writes(cluster)
    sent.pop(("patch", "TrainJob"), None)  # the status of a suspended one
    assert not sent
