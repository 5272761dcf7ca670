# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Volumes of deleted claims become available; volumes in use do not."""

import threading

import pytest
from controller_runtime.fake import FakeClient
from controller_runtime.machinery.errors import ConflictError

from trainerctl.localcluster.recycling import VOLUME, recycle_one

CLAIM = {"namespace": "team", "name": "data", "uid": "1"}


def client_of(phase: str) -> FakeClient:
    spec = {"claimRef": CLAIM, "persistentVolumeReclaimPolicy": "Retain"}
    return FakeClient(
        VOLUME.wrap(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": "v"},
                "spec": spec,
                "status": {"phase": phase},
            }
        )
    )


async def test_the_volume_of_a_deleted_claim_is_recycled_and_its_data_removed_in_a_thread() -> None:
    client, forgotten, threads = client_of("Released"), list[tuple[str, ...]](), list[int]()

    def forget(*claim: str) -> None:
        forgotten.append(claim)
        threads.append(threading.get_ident())

    await recycle_one(client, await client.get(VOLUME, ("", "v")), forget)
    assert forgotten == [("team", "data", "1")]
    assert threading.get_ident() not in threads
    assert (await client.get(VOLUME, ("", "v"))).to_dict()["spec"] == {
        "persistentVolumeReclaimPolicy": "Retain"
    }


@pytest.mark.parametrize("phase", ["Available", "Bound", "Failed", ""])
async def test_another_volume_stays_as_it_is(phase: str) -> None:
    client, forgotten = client_of(phase), list[tuple[str, str, str]]()
    await recycle_one(client, await client.get(VOLUME, ("", "v")), lambda *claim: forgotten.append(claim))
    assert forgotten == []
    assert (await client.get(VOLUME, ("", "v"))).to_dict()["spec"]["claimRef"] == CLAIM


async def test_a_volume_that_was_bound_since_stays_bound() -> None:
    client = client_of("Released")
    seen = await client.get(VOLUME, ("", "v"))
    later = seen.deep_copy()
    later["spec"] = {"claimRef": {**CLAIM, "uid": "2"}}
    await client.update(later)
    with pytest.raises(ConflictError):
        await recycle_one(client, seen, lambda *claim: None)
    assert (await client.get(VOLUME, ("", "v"))).nested("spec", "claimRef", "uid") == "2"
