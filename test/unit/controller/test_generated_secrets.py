# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The random content of a TrainJob's Secret is generated once, although the cache may lag behind its creation."""

from __future__ import annotations

from typing import Any

import pytest
from controller_runtime.apis.core.v1 import Secret
from controller_runtime.client import Client, interceptor
from controller_runtime.machinery.errors import InvalidError, NotFoundError
from controller_runtime.rest import TransportError

from testkit.trainjobs import FLUX, MPI, ReconcilerWorld, world


async def exists(client: Client, obj: Any) -> bool:
    try:
        await client.get(type(obj), obj.key)
    except NotFoundError:
        return False
    return True


class Lag:
    """Hides Secrets from the cache while ``hides`` is set, and loses the answers to their writes while ``loses`` is."""

    hides = True
    loses = False

    async def get(self, client: Client, kind: Any, key: Any) -> Any:
        if kind.gvk == Secret.gvk and self.hides:
            raise NotFoundError("not in the cache yet", code=404)
        return await client.get(kind, key)

    async def write(self, verb: str, client: Client, obj: Any, **options: Any) -> Any:
        given = obj.metadata.resource_version
        if (
            verb == "apply"
            and obj.gvk == Secret.gvk
            and obj.immutable
            and not given
            and await exists(client, obj)
        ):
            raise InvalidError("data: field is immutable when `immutable` is set", code=422, reason="Invalid")
        answer = await getattr(client, verb)(obj, **options)
        if obj.gvk == Secret.gvk and self.loses:
            raise TransportError("the connection ended", host="https://fake")
        return answer

    async def create(self, client: Client, obj: Any, **options: Any) -> Any:
        return await self.write("create", client, obj, **options)

    async def apply(self, client: Client, obj: Any, **options: Any) -> Any:
        return await self.write("apply", client, obj, **options)


async def behind(w: ReconcilerWorld) -> Lag:
    lag = Lag()
    lossy = interceptor.Funcs(get=lag.get, apply=lag.apply, create=lag.create)
    await w.restart(lossy, reader=w.server)
    return lag


@pytest.mark.parametrize(
    ("policy", "name"), [(MPI, "job-mpi-ssh-auth"), (FLUX, "job-flux-curve")], ids=["mpi", "flux"]
)
@pytest.mark.parametrize("lost", [True, False], ids=["answer lost", "watch lags"])
async def test_the_content_is_kept(policy: dict[str, Any], name: str, lost: bool) -> None:
    w = await world(policy)
    lag = await behind(w)
    lag.loses = lost
    if lost:
        with pytest.raises(ExceptionGroup, match="the connection ended"):
            await w.reconcile()
    else:
        await w.reconcile()
    lag.loses = False
    content = (await w.server.get(Secret, ("ns", name))).data
    reported = len(w.recorder.events)

    await w.reconcile()
    assert (await w.server.get(Secret, ("ns", name))).data == content
    assert w.result.requeue_after
    assert len(w.recorder.events) == reported

    lag.hides = False
    await w.reconcile()
    assert (await w.job_set())["spec"]
    assert (await w.server.get(Secret, ("ns", name))).data == content
