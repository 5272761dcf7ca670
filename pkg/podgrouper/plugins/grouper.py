# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The interface of a grouper, and the record of the objects from which it makes a group."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import IntEnum
from typing import ClassVar, Final, NamedTuple

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import GVK, Object, Unstructured, names

from pkg.constants import kai
from pkg.podgrouper.podgroup import Metadata

HASH_LENGTH: Final = 8


def runs_in(pod: Pod, group: str) -> bool:
    """Return True if the pod has a node and is in the group. Such a pod keeps the group, even of an earlier release."""
    return bool(pod.spec.node_name) and pod.annotations.get(kai.POD_GROUP_ANNOTATION_FOR_POD) == group


def fitting(
    name: str,
    limit: int = names.DNS1123_SUBDOMAIN_MAX_LENGTH,
    is_valid: Callable[[str], object] = lambda name: not names.is_dns1123_subdomain(name),
) -> str:
    """Return ``name`` if it has at most ``limit`` characters and is valid.

    Otherwise, return another name, in which invalid characters are replaced, and which ends with a hash of ``name``.
    """
    valid = is_valid(name)
    if valid and len(name) <= limit:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:HASH_LENGTH]
    kept = name if valid else re.sub("[^a-z0-9]+", "-", name.lower())
    kept = kept[: limit - 1 - HASH_LENGTH]
    # In the name of a group, a dot must not precede a hyphen.
    kept = f"{kept[:-1]}-" if kept.endswith(".") else kept
    return f"{kept}-{digest}".lstrip("-")


class Key(NamedTuple):
    """Identifies an owner by name."""

    kind: GVK
    namespace: str
    name: str


@dataclass(slots=True)
class Inputs:
    """The objects from which the group of a pod was made."""

    read: set[Key] = field(default_factory=set)
    """The owners of the pod, and other objects that were read like owners."""
    unread: list[str] = field(default_factory=list)
    """Why PriorityClasses or the ConfigMap of defaults could not be read."""
    is_denied: bool = False
    """True if the group was made without an owner or a gang, because we are not permitted to read it."""

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Add what the body reads."""
        token = _inputs.set(self)
        try:
            yield
        finally:
            _inputs.reset(token)


_inputs: Final[ContextVar[Inputs]] = ContextVar("inputs")


def inputs() -> Inputs:
    """Return the record of the group that is being made. If there is none, return a new record."""
    return _inputs.get(None) or Inputs()


class Reads(IntEnum):
    """How much of its top owner a grouper reads. Other parts may be missing or stale."""

    METADATA = 1
    """Only the metadata; the rest of the object may be missing."""
    SPEC = 2
    """The whole object except ``status``, which may be missing or stale."""
    OBJECT = 3
    """Everything."""


class Grouper(ABC):
    """Determines the group of a pod by its kind of workload. One instance serves concurrent reconciles."""

    name: ClassVar[str]
    """The name in logs and in ``trainerctl group``."""
    reads: ClassVar[Reads] = Reads.OBJECT
    """How much of the top owner the grouper reads. Reading less means fewer requests."""

    @abstractmethod
    async def get_pod_group_metadata(
        self, top_owner: Unstructured, pod: Pod, *other_owners: Object
    ) -> Metadata:
        """Return the group of ``pod``.

        ``other_owners`` contains the metadata of all owners of the pod, including the top owner, nearest first. A pod
        without owners is its own top owner, and ``other_owners`` is empty. The arguments must not be changed.

        Raises:
            GroupingError: the owner is malformed.
            StatusError: another object that the grouper needs could not be read.
        """
