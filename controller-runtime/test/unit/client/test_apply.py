# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Which fields an apply sends."""

import itertools
import json
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

import pydantic
import pytest
from pydantic import Field

import controller_runtime as ctrl
from controller_runtime.client.live import apply_configuration
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import JSON

_numbers = itertools.count()


class Port(ctrl.Struct):
    number: int
    protocol: str = "TCP"


class Extra(ctrl.Struct):
    cpu: int = 1
    tags: list[str] = Field(default_factory=list)
    labels: dict[str, str] = Field(default_factory=lambda: {"a": "b"})


class Root(pydantic.RootModel[dict[str, int]]):
    pass


class SiteSpec(ctrl.Struct):
    image: str = "nginx"
    replicas: int = 1
    ports: list[Port] = Field(default_factory=list)
    by_name: dict[str, Port] | None = None
    extra: Extra = Field(default_factory=Extra)
    filled: Extra = Field(default_factory=lambda: Extra(cpu=2))
    root: Root = Root({"a": 1})
    token: str = Field(default_factory=lambda: str(next(_numbers)))
    upper: Annotated[str, pydantic.PlainSerializer(str.upper)] = "x"


class SiteStatus(ctrl.Struct):
    phase: str = "Pending"


class Site(ctrl.Object, group="example.com", version="v1", plural="sites"):
    spec: SiteSpec = Field(default_factory=SiteSpec)
    status: SiteStatus = Field(default_factory=SiteStatus)


class GoSite(Site, group="example.com", version="v1", kind="Site", plural="sites"):
    applies_defaults: ClassVar[bool] = True


METADATA = ctrl.ObjectMeta(name="s", namespace="n")


def sent(site: Site) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(apply_configuration(site))
    assert found.pop("apiVersion") == "example.com/v1"
    assert found.pop("kind") == "Site"
    assert found.pop("metadata") == {"name": "s", "namespace": "n"}
    return found


def by_assignment() -> Site:
    site = Site(metadata=METADATA)
    site.spec.replicas = 1
    return site


def by_change_in_place() -> Site:
    site = Site(metadata=METADATA)
    site.spec.ports.append(Port(number=80))
    site.spec.extra.tags.append("new")
    site.spec.extra.labels["c"] = "d"
    return site


class File(ctrl.Struct):
    type: Literal["file"] = "file"
    path: str = "/"


class Bucket(ctrl.Struct):
    type: Literal["bucket"] = "bucket"
    mode: Literal["read", "write"] = "read"


Source = Annotated[File | Bucket, Field(discriminator="type")]


class Volume(ctrl.Object, group="example.com", version="v1", plural="volumes"):
    source: Source
    sources: list[Source] = Field(default_factory=list)


def test_an_apply_sends_the_field_that_tells_the_members_of_a_union_apart() -> None:
    volume = Volume(source=Bucket(), sources=[File(path="/a"), Bucket(mode="write")])
    sent = json.loads(apply_configuration(volume))
    assert sent["source"] == {"type": "bucket"}
    assert sent["sources"] == [{"type": "file", "path": "/a"}, {"type": "bucket", "mode": "write"}]
    assert Volume.from_dict(sent) == volume


def by_unknown_fields() -> Site:
    site = Site(metadata=METADATA)
    site.spec.set_unknown_fields({"future": 1})
    return site


@pytest.mark.parametrize(
    ("make", "body"),
    [
        (lambda: Site(metadata=METADATA), {}),
        (lambda: Site(metadata=METADATA, spec=SiteSpec()), {"spec": {}}),
        (lambda: Site(metadata=METADATA, spec=SiteSpec(image="nginx")), {"spec": {"image": "nginx"}}),
        (lambda: Site(metadata=METADATA, spec=SiteSpec(root=Root({"b": 2}))), {"spec": {"root": {"b": 2}}}),
        (lambda: Site(metadata=METADATA, spec=SiteSpec(upper="y")), {"spec": {"upper": "Y"}}),
        (
            lambda: Site(
                metadata=METADATA,
                spec=SiteSpec(
                    ports=[Port(number=1), Port(number=2, protocol="UDP")], by_name={"a": Port(number=3)}
                ),
            ),
            {
                "spec": {
                    "ports": [{"number": 1}, {"number": 2, "protocol": "UDP"}],
                    "byName": {"a": {"number": 3}},
                }
            },
        ),
        (lambda: Site(metadata=METADATA, spec=SiteSpec(extra=Extra(cpu=3))), {"spec": {"extra": {"cpu": 3}}}),
        (by_assignment, {"spec": {"replicas": 1}}),
        (
            by_change_in_place,
            {"spec": {"ports": [{"number": 80}], "extra": {"tags": ["new"], "labels": {"a": "b", "c": "d"}}}},
        ),
        (by_unknown_fields, {"spec": {"future": 1}}),
        (
            lambda: Site.from_dict({"metadata": METADATA.to_dict(), "status": {"phase": "Pending"}}),
            {"status": {"phase": "Pending"}},
        ),
        (lambda: by_change_in_place().deep_copy(), sent(by_change_in_place())),
    ],
)
def test_an_apply_sends_what_was_set_and_no_python_default(make: Callable[[], Site], body: JSON) -> None:
    site = make()
    before = site.to_dict()
    assert sent(site) == body
    assert site.to_dict() == before, "the argument is the caller's"


async def test_what_an_apply_does_not_send_stays_another_manager_s() -> None:
    client = FakeClient()
    await client.create(Site(metadata=METADATA, spec=SiteSpec(replicas=5)), field_owner="them")
    stored = await client.apply(
        Site(metadata=METADATA, spec=SiteSpec(image="mine")), field_owner="me", force=True
    )
    assert (stored.spec.image, stored.spec.replicas) == ("mine", 5)
    assert client.calls[-1].body["spec"] == {"image": "mine"}


def test_a_create_still_sends_the_defaults() -> None:
    assert Site(metadata=METADATA).to_dict()["spec"]["image"] == "nginx"


def test_a_kind_may_ask_for_its_defaults() -> None:
    site = GoSite(metadata=METADATA)
    assert json.loads(apply_configuration(site)) == site.to_dict()
    site.metadata.managed_fields = []
    assert "managedFields" not in json.loads(apply_configuration(site))["metadata"]


def test_managed_fields_are_left_out_beside_unset_fields() -> None:
    site = Site(metadata=ctrl.ObjectMeta(name="s", namespace="n", managed_fields=[]))
    assert sent(site) == {}
