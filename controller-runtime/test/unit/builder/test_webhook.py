# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import pytest

from controller_runtime import manager, rest, webhook
from controller_runtime.apis.coordination.v1 import Lease
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.builder.webhook import new_webhook_managed_by


class Anything(webhook.CustomValidator[Lease], webhook.CustomDefaulter[Lease]):
    async def validate_create(self, obj: Lease) -> list[str]:
        return []

    async def validate_update(self, old: Lease, new: Lease) -> list[str]:
        return []

    async def validate_delete(self, obj: Lease) -> list[str]:
        return []

    async def default(self, obj: Lease) -> None: ...


@pytest.fixture
async def mgr() -> manager.Manager:
    options = manager.Options(metrics_bind_address="0")
    return manager.Manager(
        rest.Config("https://x"), options, transport=rest.FakeTransport(lambda _: rest.FakeResponse())
    )


async def test_paths_are_those_that_webhook_configurations_name(mgr: manager.Manager) -> None:
    new_webhook_managed_by(mgr, Lease).with_validator(Anything()).with_defaulter(Anything()).complete()
    assert set(mgr.webhook_server.paths) == {
        "/validate-coordination-k8s-io-v1-lease",
        "/mutate-coordination-k8s-io-v1-lease",
    }


async def test_a_path_is_served_once(mgr: manager.Manager) -> None:
    new_webhook_managed_by(mgr, Lease).with_validator(Anything()).complete()
    with pytest.raises(ValueError, match="duplicate path: /validate-coordination-k8s-io-v1-lease"):
        new_webhook_managed_by(mgr, Lease).with_validator(Anything()).complete()


async def test_a_webhook_without_anything_behind_it_is_a_mistake(mgr: manager.Manager) -> None:
    with pytest.raises(ValueError, match="v1, Kind=ConfigMap: neither validator nor defaulter"):
        new_webhook_managed_by(mgr, ConfigMap).complete()
