# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""corev1.Event. It is in a module of its own, because every manager uses it and few need other kinds of the group."""

from typing import ClassVar

from controller_runtime.machinery import Object, Struct


class ObjectReference(Struct):
    kind: str | None = None
    namespace: str | None = None
    name: str | None = None
    uid: str | None = None
    api_version: str | None = None
    resource_version: str | None = None
    field_path: str | None = None


class EventSource(Struct):
    component: str | None = None
    host: str | None = None


class EventSeries(Struct):
    count: int | None = None
    last_observed_time: str | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"last_observed_time"})


class Event(Object, group="", version="v1", plural="events"):
    involved_object: ObjectReference | None = None
    reason: str | None = None
    message: str | None = None
    source: EventSource | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    count: int | None = None
    type: str | None = None
    event_time: str | None = None
    series: EventSeries | None = None
    action: str | None = None
    related: ObjectReference | None = None
    reporting_component: str = ""
    reporting_instance: str = ""
    go_always: ClassVar[frozenset[str]] = frozenset(
        {
            "involved_object",
            "source",
            "first_timestamp",
            "last_timestamp",
            "event_time",
            "reporting_component",
            "reporting_instance",
        }
    )
