# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The operator on the page for users of kopf does what the page says, against an in-memory API server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import controller_runtime as ctrl
from controller_runtime import webhook
from controller_runtime.apis.core.v1 import Event
from controller_runtime.fake import FakeClient, FakeRecorder
from controller_runtime.machinery import crd, field
from ctrl_testkit.buckets import Storage, imported_page
from ctrl_testkit.managers import running

REQUEST = ctrl.Request("team-a", "one")


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
def client(page: dict[str, Any]) -> FakeClient:
    return FakeClient(crds=[crd.custom_resource_definition(page["Bucket"])])


@pytest.fixture
def reconciler(page: dict[str, Any], client: FakeClient, storage: Storage) -> Any:
    return page["BucketReconciler"](client, FakeRecorder(), storage)


async def create(page: dict[str, Any], client: FakeClient, name: str = "one", region: str = "north") -> Any:
    metadata = ctrl.ObjectMeta(namespace="team-a", name=name)
    spec = page["BucketSpec"](team="a", region=region, size=5)
    return await client.create(page["Bucket"](metadata=metadata, spec=spec))


async def test_buckets_are_provisioned_repaired_and_deleted(
    page: dict[str, Any], client: FakeClient, storage: Storage, tmp_path: Path
) -> None:
    for name, content in zip(("tls.crt", "tls.key"), webhook.SelfSigned().pair(), strict=True):
        (tmp_path / name).write_bytes(content)
    options = ctrl.Options(
        metrics_bind_address="0", webhook_host="127.0.0.1", webhook_port=0, webhook_cert_dir=str(tmp_path)
    )
    mgr = ctrl.Manager(ctrl.Config("http://memory"), options, transport=client.transport)
    await page["setup"](mgr, storage)
    assert await client.list(Event) == []  # the server in memory serves the kinds that it has seen
    assert mgr.webhook_server.paths == ["/validate-example-com-v1-bucket"]
    async with running(mgr):
        await mgr.elected.wait()
        made = await create(page, client)
        uid = made.metadata.uid
        await anyio.sleep(1)
        stored = await client.get(page["Bucket"], REQUEST)
        assert (stored.status.used, stored.metadata.finalizers) == (len(uid), ["example.com/bucket"])
        assert storage.buckets == {uid: 5}
        storage.lose(uid, REQUEST)
        await anyio.sleep(1)
        assert storage.buckets == {uid: 5}
        await client.delete(made)
        await anyio.sleep(1)
        assert (storage.buckets, await client.list(page["Bucket"])) == ({}, [])
    (event,) = await client.list(Event)
    assert (event.reason, event.message, event.count) == ("Provisioned", "The bucket has 5 GiB", 2)


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
