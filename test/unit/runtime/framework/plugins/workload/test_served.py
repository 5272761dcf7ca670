# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The schemas of the API server determine the version in which gangs are written."""

from __future__ import annotations

from typing import Any, ClassVar, cast

import pytest
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Object
from controller_runtime.machinery.errors import StatusError
from controller_runtime.rest import PublishedSchema

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.scheduling import v1alpha1, v1alpha2, v1beta1
from pkg.runtime.framework.plugins.workload import Workload
from pkg.runtime.framework.plugins.workload.served import MISSING_TTL, TTL, Served, keeps

KINDS: dict[str, type[Object]] = {
    "v1alpha1": v1alpha1.Workload,
    "v1alpha2": v1alpha2.PodGroup,
    "v1beta1": v1beta1.PodGroup,
}


def job_set(*pod_fields: str, **more: object) -> dict[str, Any]:
    """Return the schema properties of a JobSet whose pod specs have these fields; ``more`` is added to their schema."""
    schema: dict[str, Any] = {"type": "object", "properties": {key: {"type": "object"} for key in pod_fields}}
    schema |= more
    for step in ("spec", "template", "spec", "template"):
        schema = {"type": "object", "properties": {step: schema}}
    return {"spec": {"properties": {"replicatedJobs": {"type": "array", "items": schema}}}}


class Server:
    """Publishes schemas, and counts how often one is requested."""

    def __init__(self, *served: str, pod_fields: tuple[str, ...] = ()) -> None:
        self.served = set(served)
        self.pod_fields = pod_fields
        self.requests = 0
        self.now = 0.0
        self.down = False

    async def published(self, kind: type[Object], known: PublishedSchema | None) -> PublishedSchema | None:
        self.requests += 1
        if self.down:
            raise StatusError("starting", code=503, reason="ServiceUnavailable")
        if kind is JobSet:
            revision = ",".join(self.pod_fields)
            if known is not None and known.revision == revision:
                return known
            return PublishedSchema(revision, job_set(*self.pod_fields))
        named = next(version for version, each in KINDS.items() if each is kind)
        return PublishedSchema("1", {}) if named in self.served else None

    def clock(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("served", "pod_field", "version"),
    [
        (("v1alpha1",), "workloadRef", "v1alpha1"),
        (("v1alpha2",), "schedulingGroup", "v1alpha2"),
        (("v1beta1",), "schedulingGroup", "v1beta1"),
        (("v1alpha2", "v1beta1"), "schedulingGroup", "v1beta1"),
    ],
)
async def test_the_newest_version_that_is_served_is_written(
    served: tuple[str, ...], pod_field: str, version: str
) -> None:
    server = Server(*served, pod_fields=("containers", pod_field))
    support = await Served(server.published, server.clock).current()
    assert (support.version, support.reason) == (version, "")


async def test_without_the_api_the_reason_names_the_feature_gate() -> None:
    server = Server(pod_fields=("schedulingGroup",))
    support = await Served(server.published, server.clock).current()
    assert (support.version, support.reason) == ("", "GangAPINotServed")
    assert "GenericWorkload" in support.message


@pytest.mark.parametrize(
    ("served", "pod_field", "release"),
    [("v1alpha1", "workloadRef", "0.11"), ("v1beta1", "schedulingGroup", "0.12")],
)
async def test_a_job_set_that_drops_the_field_is_named_with_the_release_that_keeps_it(
    served: str, pod_field: str, release: str
) -> None:
    server = Server(served, pod_fields=("containers", "schedulingGates"))
    support = await Served(server.published, server.clock).current()
    assert (support.version, support.reason) == ("", "GangFieldDropped")
    assert f"the field {pod_field} " in support.message
    assert f"JobSet {release} or newer" in support.message


async def test_what_is_served_is_read_again_after_a_minute_and_what_is_missing_after_seconds() -> None:
    server = Server("v1alpha2", pod_fields=())
    served = Served(server.published, server.clock)
    assert (await served.current()).reason == "GangFieldDropped"

    server.pod_fields = ("schedulingGroup",)
    server.now = MISSING_TTL
    assert (await served.current()).version == "v1alpha2"

    server.served.clear()
    before = server.requests
    server.now += TTL - 1
    assert (await served.current()).version == "v1alpha2"
    assert server.requests == before
    server.now += 1
    assert (await served.current()).reason == "GangAPINotServed"


async def test_a_server_that_fails_leaves_what_was_read_and_is_an_error_before() -> None:
    server = Server("v1beta1", pod_fields=("schedulingGroup",))
    server.down = True
    served = Served(server.published, server.clock)
    with pytest.raises(StatusError):
        await served.current()
    server.down = False
    await served.current()
    server.down, server.now = True, TTL
    assert (await served.current()).version == "v1beta1"


async def test_without_a_server_the_newest_version_counts_as_served() -> None:
    assert (await Served(None, lambda: 0.0).current()).version == "v1beta1"


def test_a_schema_that_does_not_describe_pods_keeps_every_field() -> None:
    preserved = job_set("containers")
    preserved["spec"]["x-kubernetes-preserve-unknown-fields"] = True
    assert keeps(preserved, "workloadRef")
    assert keeps({}, "workloadRef")
    assert keeps(job_set("containers", **{"x-kubernetes-preserve-unknown-fields": True}), "workloadRef")
    assert not keeps(job_set("containers"), "workloadRef")
    assert keeps(job_set("containers", "workloadRef"), "workloadRef")


async def test_an_interrupted_watch_of_gangs_makes_it_read_the_api_again_once() -> None:
    server = Server("v1beta1", pod_fields=("schedulingGroup",))
    interrupted: dict[type[Object], float] = {}
    served = Served(server.published, server.clock)
    served.expire_after_interruption(interrupted.get)
    assert (await served.current()).version == "v1beta1"
    before = server.requests
    assert (await served.current()).version == "v1beta1"
    assert server.requests == before

    server.now = 3
    interrupted[v1beta1.PodGroup] = 2
    assert (await served.current()).version == "v1beta1"
    read = server.requests
    assert read > before
    for _ in range(9):
        await served.current()
    assert server.requests == read, "a watch that stays denied must not cost a request for each reconcile"

    server.now, server.served = 5, set()
    interrupted[v1beta1.PodGroup] = 4
    assert (await served.current()).reason == "GangAPINotServed"


async def test_the_cache_reports_interruptions_of_the_watch_of_gangs() -> None:
    server = Server("v1beta1", pod_fields=("schedulingGroup",))
    served = Served(server.published, server.clock)

    class Cache:
        interrupted: ClassVar[dict[type[Object], float]] = {}

        def interrupted_since(self, kind: type[Object]) -> float | None:
            return self.interrupted.get(kind)

    class Builder:
        def watches(self, *_args: object, **_options: object) -> Builder:
            return self

        def watches_raw_source(self, _source: object) -> Builder:
            return self

    for add in Workload(FakeClient(), served).reconciler_builders():
        add(cast("Any", Builder()), FakeClient(), cast("Any", Cache()))
    await served.current()
    server.now, server.served = 3, set()
    assert (await served.current()).version == "v1beta1"
    Cache.interrupted[v1beta1.PodGroup] = 2
    assert (await served.current()).reason == "GangAPINotServed"


async def test_what_was_read_before_an_interruption_is_not_believed_while_the_server_is_unavailable() -> None:
    server = Server("v1beta1", pod_fields=("schedulingGroup",))
    served = Served(server.published, server.clock)
    await served.current()
    server.now, server.down = 3, True
    served.expire_after_interruption(lambda _kind: 2.0)
    for _ in range(2):
        with pytest.raises(StatusError):
            await served.current()
    server.down = False
    assert (await served.current()).version == "v1beta1"
