# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Live objects as JSON. The functions that read a field return an empty value if it is missing or malformed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from controller_runtime.machinery import GVK, JSON
from controller_runtime.machinery.meta import parse_time

_FIRST: Final = 1900
_LAST: Final = 9900
"""Years of the times that we read: ``datetime`` could not add durations to times near the ends of its range."""
_MOST_SECONDS: Final = 1 << 30
NO_CONDITION: Final[Mapping[str, JSON]] = {}
MOST_MATCHED: Final = 2048
"""We look for causes only in this many characters of a message, because tenants can write messages of megabytes."""


def at(data: JSON, *path: str) -> JSON:
    """Return the value at ``path``, or None if a step is missing."""
    for step in path:
        if not isinstance(data, Mapping):
            return None
        data = data.get(step)
    return data


def text(data: JSON, *path: str) -> str:
    """Return the string at ``path``, or an empty one."""
    found = at(data, *path)
    return found if isinstance(found, str) else ""


def number(data: JSON, *path: str) -> int:
    """Return the integer at ``path``, or 0."""
    found = at(data, *path)
    return found if isinstance(found, int) else 0


def seconds(data: JSON, *path: str) -> timedelta:
    """Return the number of seconds at ``path`` as a duration of at most some decades, or an empty duration."""
    return timedelta(seconds=max(0, min(number(data, *path), _MOST_SECONDS)))


def maps(data: JSON, *path: str) -> list[dict[str, JSON]]:
    """Return the objects in the list at ``path``."""
    found = at(data, *path)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def texts(data: JSON, *path: str) -> list[str]:
    """Return the strings in the list at ``path``."""
    found = at(data, *path)
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def moment(data: JSON, *path: str) -> datetime | None:
    """Return the time at ``path``, or None."""
    found = text(data, *path)
    try:
        time = parse_time(found) if found else None
    except ValueError:
        return None
    return time if time is None or _FIRST <= time.year < _LAST else None


def ago(since: datetime | None, now: datetime) -> str:
    """Return an age such as ``90s``, ``5m``, ``3h`` or ``2d``, in the largest unit in which it is at least 2."""
    if since is None:
        return "unknown age"
    seconds = max(0, int((now - since).total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


class LiveObject:
    """An object of any kind."""

    __slots__ = ("data",)

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = data

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    @property
    def kind(self) -> str:
        """The kind, without its group."""
        return text(self.data, "kind")

    @property
    def group_kind(self) -> str:
        """Kind and group, as in ``JobSet.jobset.x-k8s.io``."""
        return str(GVK.parse(text(self.data, "apiVersion"), self.kind).group_kind)

    @property
    def name(self) -> str:
        """The name."""
        return text(self.data, "metadata", "name")

    @property
    def namespace(self) -> str:
        """The namespace."""
        return text(self.data, "metadata", "namespace")

    @property
    def uid(self) -> str:
        """The uid."""
        return text(self.data, "metadata", "uid")

    @property
    def created(self) -> datetime | None:
        """The creation time."""
        return moment(self.data, "metadata", "creationTimestamp")

    @property
    def deleted(self) -> datetime | None:
        """The deletion timestamp. For a pod, it is the time at which the grace period ends."""
        return moment(self.data, "metadata", "deletionTimestamp")

    @property
    def deletion_requested(self) -> datetime | None:
        """The time at which the deletion was requested."""
        grace = seconds(self.data, "metadata", "deletionGracePeriodSeconds")
        return self.deleted and self.deleted - grace

    def label(self, name: str) -> str:
        """Return a label's value."""
        return text(self.data, "metadata", "labels", name)

    def annotation(self, name: str) -> str:
        """Return an annotation's value."""
        return text(self.data, "metadata", "annotations", name)

    def at(self, *path: str) -> JSON:
        """Return the value at ``path``, or None."""
        return at(self.data, *path)

    def text(self, *path: str) -> str:
        """Return the string at ``path``, or an empty one."""
        return text(self.data, *path)

    def number(self, *path: str) -> int:
        """Return the integer at ``path``, or 0."""
        return number(self.data, *path)

    def maps(self, *path: str) -> list[dict[str, JSON]]:
        """Return the objects in the list at ``path``."""
        return maps(self.data, *path)

    def condition(self, kind: str) -> Mapping[str, JSON]:
        """Return a condition of the status, or an empty one."""
        for each in self.maps("status", "conditions"):
            if each.get("type") == kind:
                return each
        return NO_CONDITION

    def is_true(self, kind: str) -> bool:
        """Return True if a condition of the status is True."""
        return self.condition(kind).get("status") == "True"

    def owned_by(self, uid: str) -> bool:
        """Return True if the object with this UID owns this one."""
        return bool(uid) and uid in self.owner_uids

    @property
    def owner_uids(self) -> list[str]:
        """The uids of the owners."""
        return [text(each, "uid") for each in self.maps("metadata", "ownerReferences")]

    def older_than(self, age: timedelta, now: datetime) -> bool:
        """Return True if the object was created longer than ``age`` ago."""
        return self.created is not None and now - self.created > age


def finalizers_of(obj: LiveObject) -> str:
    """Return a line of evidence that lists the finalizers of an object."""
    return f"its finalizers are {', '.join(texts(obj.data, 'metadata', 'finalizers')) or 'none'}"


def deadline(obj: LiveObject) -> str:
    """Return the deadline of a TrainJob, Job or pod in words. The words include the seconds if the object sets them."""
    seconds = obj.number("spec", "activeDeadlineSeconds")
    return f"deadline of {seconds} s" if seconds else "deadline"
