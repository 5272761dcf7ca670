# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The operator on the page for users of kopf does what the page says, against an in-memory API server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import controller_runtime as ctrl
from controller_runtime.fake import FakeClient, FakeRecorder
from controller_runtime.machinery import crd, field
from ctrl_testkit.buckets import Storage, imported_page

REQUEST = ctrl.Request("team-a", "one")


class Queue:
    """Keeps the requests that a source adds."""

    def __init__(self) -> None:
        self.requests: list[ctrl.Request] = []

    def add(self, request: ctrl.Request, **options: object) -> None:
        assert options == {}
        self.requests.append(request)


@pytest.fixture
def page(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Import the page's operator, and return its names with their values."""
    with imported_page(tmp_path) as module:
        yield vars(module)


@pytest.fixture
def storage() -> Iterator[Storage]:
    made = Storage()
    yield made
    made.close()


@pytest.fixture
def events() -> FakeRecorder:
    return FakeRecorder()


@pytest.fixture
def client(page: dict[str, Any]) -> FakeClient:
    return FakeClient(crds=[crd.custom_resource_definition(page["Bucket"])])


@pytest.fixture
def reconciler(page: dict[str, Any], client: FakeClient, events: FakeRecorder, storage: Storage) -> Any:
    return page["BucketReconciler"](client, events, storage)


async def create(page: dict[str, Any], client: FakeClient, name: str = "one", region: str = "north") -> Any:
    metadata = ctrl.ObjectMeta(namespace="team-a", name=name)
    spec = page["BucketSpec"](team="a", region=region, size=5)
    return await client.create(page["Bucket"](metadata=metadata, spec=spec))


async def test_a_bucket_is_provisioned_after_its_finalizer_is_stored(
    page: dict[str, Any], client: FakeClient, reconciler: Any, storage: Storage, events: FakeRecorder
) -> None:
    made = await create(page, client)
    assert await reconciler.reconcile(REQUEST) == ctrl.Result()
    assert storage.buckets == {}
    for _ in range(2):
        assert await reconciler.reconcile(REQUEST) == ctrl.Result(requeue_after=300)
    assert storage.buckets == {made.metadata.uid: 5}
    assert events.reasons == ["Provisioned"]
    stored = await client.get(page["Bucket"], REQUEST)
    assert stored.status.used == len(made.metadata.uid)
    assert stored.metadata.finalizers == ["example.com/bucket"]


async def test_a_deleted_bucket_leaves_nothing_behind(
    page: dict[str, Any], client: FakeClient, reconciler: Any, storage: Storage
) -> None:
    made = await create(page, client)
    await reconciler.reconcile(REQUEST)
    await reconciler.reconcile(REQUEST)
    await client.delete(made)
    await reconciler.reconcile(REQUEST)
    assert storage.buckets == {}
    assert await client.list(page["Bucket"]) == []
    assert await reconciler.reconcile(REQUEST) == ctrl.Result()


async def test_a_full_storage_is_asked_again_and_a_wrong_region_is_not(
    page: dict[str, Any], client: FakeClient, reconciler: Any, storage: Storage
) -> None:
    storage.capacity = 1
    await create(page, client)
    await reconciler.reconcile(REQUEST)
    assert await reconciler.reconcile(REQUEST) == ctrl.Result(requeue_after=60)
    await create(page, client, "two", "nowhere")
    await reconciler.reconcile(ctrl.Request("team-a", "two"))
    with pytest.raises(ctrl.TerminalError, match="no region is called nowhere"):
        await reconciler.reconcile(ctrl.Request("team-a", "two"))


async def test_a_lost_bucket_is_requested(reconciler: Any, storage: Storage) -> None:
    queue = Queue()
    storage.buckets["uid"] = 5
    storage.lose("uid", ("team-a", "one"))
    with anyio.move_on_after(1):
        await reconciler.lost(queue)
    assert queue.requests == [REQUEST]


async def test_a_fourth_bucket_of_a_team_is_refused(page: dict[str, Any], client: FakeClient) -> None:
    await client.index_field(page["Bucket"], "spec.team", lambda bucket: [bucket.spec.team])
    quota = page["Quota"](client)
    for name in ("one", "two"):
        await create(page, client, name)
    third = await create(page, client, "three")
    with pytest.raises(field.FieldError, match="a team has at most 3 buckets"):
        await quota.validate_create(third)
    await client.delete(third)
    assert await quota.validate_create(third) == []
