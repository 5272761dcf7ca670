# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable

import pytest

from controller_runtime import manager, rest, webhook
from controller_runtime.apis.coordination.v1 import Lease
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.builder import WebhookBuilder, new_webhook_managed_by
from controller_runtime.machinery import Object, Scheme
from ctrl_testkit.versions import Boat, BoatV1alpha1


class Anything(webhook.CustomValidator[Lease], webhook.CustomDefaulter[Lease]):
    async def validate_create(self, obj: Lease) -> list[str]:
        return []

    async def validate_update(self, old: Lease, new: Lease) -> list[str]:
        return []

    async def validate_delete(self, obj: Lease) -> list[str]:
        return []

    async def default(self, obj: Lease) -> None: ...


def manager_of(*kinds: type[Object]) -> manager.Manager:
    options = manager.Options(metrics_bind_address="0", scheme=Scheme(*kinds))
    return manager.Manager(
        rest.Config("https://x"), options, transport=rest.FakeTransport(lambda _: rest.FakeResponse())
    )


@pytest.fixture
async def mgr() -> manager.Manager:
    return manager_of()


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
    with pytest.raises(
        ValueError, match="v1, Kind=ConfigMap: neither validator nor defaulter nor conversion"
    ):
        new_webhook_managed_by(mgr, ConfigMap).complete()


async def test_a_validator_and_a_defaulter_have_paths_of_their_own(mgr: manager.Manager) -> None:
    (
        new_webhook_managed_by(mgr, Lease)
        .with_validator(Anything())
        .with_validator_custom_path("/judge/leases")
        .with_defaulter(Anything())
        .with_defaulter_custom_path("/complete")
        .complete()
    )
    assert set(mgr.webhook_server.paths) == {"/judge/leases", "/complete"}


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (
            lambda made: made.with_validator(Anything()).with_defaulter_custom_path("/d"),
            "path /d is given, but no handler to mutate",
        ),
        (
            lambda made: made.with_validator(Anything()).with_validator_custom_path("judge"),
            "'judge' is not a valid path",
        ),
        (
            lambda made: made.with_validator(Anything()).with_validator_custom_path("/judge?all"),
            "'/judge.all' is not a valid path",
        ),
    ],
)
async def test_a_path_that_is_never_called_is_a_mistake(
    mgr: manager.Manager, declare: Callable[[WebhookBuilder[Lease]], WebhookBuilder[Lease]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        declare(new_webhook_managed_by(mgr, Lease)).complete()


async def test_versions_are_converted_at_one_path_for_all_kinds(mgr: manager.Manager) -> None:
    new_webhook_managed_by(mgr, Boat).with_conversion(BoatV1alpha1).complete()
    new_webhook_managed_by(mgr, Lease).with_conversion().with_validator(Anything()).complete()
    assert mgr.webhook_server.paths == ["/convert", "/validate-coordination-k8s-io-v1-lease"]
    assert b'"rig":"2"' in mgr.webhook_server.conversions.convert(
        Boat.from_dict({"spec": {"oars": 2}}).to_json(), "fleets.example.org/v1alpha1"
    )


async def test_every_version_that_the_scheme_knows_must_convert() -> None:
    class BoatV2(Object, group="fleets.example.org", version="v2", kind="Boat", plural="boats"):
        """A version without a converter."""

    mgr = manager_of(Boat, BoatV1alpha1, BoatV2, Lease)
    with pytest.raises(ValueError, match=r"conversion of Boat\.fleets\.example\.org: no converter for v2$"):
        new_webhook_managed_by(mgr, Boat).with_conversion(BoatV1alpha1).complete()


async def test_a_kind_of_the_same_name_in_another_group_need_not_convert() -> None:
    class RentedBoat(Object, group="rentals.example.org", version="v3", kind="Boat", plural="boats"):
        """Without a converter."""

    mgr = manager_of(Boat, BoatV1alpha1, RentedBoat)
    new_webhook_managed_by(mgr, Boat).with_conversion(BoatV1alpha1).complete()
    assert mgr.webhook_server.paths == ["/convert"]
