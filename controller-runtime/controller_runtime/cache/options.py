# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Which objects a cache keeps of each kind, and its settings."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Collection, Mapping
from typing import Final

from controller_runtime import client
from controller_runtime.machinery import Object, rawjson

from .codec import Transform
from .reflector import RandomFunc

ALL_NAMESPACES: Final[Collection[str]] = ("",)


@dataclasses.dataclass(frozen=True, slots=True)
class InNamespace:
    """The selectors of one kind in one namespace; unset fields are inherited from the kind."""

    labels: client.LabelSelectorLike | None = None
    fields: Mapping[str, str] | str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ByObject:
    """The objects cached of one kind; unset fields are inherited from :class:`Options`."""

    labels: client.LabelSelectorLike | None = None
    fields: Mapping[str, str] | str | None = None
    """A field selector, as the server understands it: field values that must be equal, or the selector's text."""
    namespaces: Collection[str] | Mapping[str, InNamespace | None] | None = None
    """The namespaces to cache, with a list and watch for each; ``("",)`` stands for all, with a single list and watch.
    A map sets selectors for a namespace: ``{"team-a": InNamespace(labels="app=web"), "team-b": None}``."""
    transform: Transform | None = None
    limits: rawjson.Limits | None = None

    def within(self, namespace: str) -> InNamespace:
        """Return the selectors of one namespace."""
        own = self.namespaces.get(namespace) if isinstance(self.namespaces, Mapping) else None
        own = own or InNamespace()
        return InNamespace(
            labels=own.labels if own.labels is not None else self.labels,
            fields=own.fields if own.fields is not None else self.fields,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """Settings of a cache."""

    by_object: Mapping[type[Object], ByObject] = dataclasses.field(default_factory=dict)
    """Settings by class. The full and the metadata-only class of a kind share an entry unless each has its own."""
    default_namespaces: Collection[str] = ALL_NAMESPACES
    default_labels: client.LabelSelectorLike | None = None
    default_fields: Mapping[str, str] | str | None = None
    default_transform: Transform | None = None
    read_timeout: float = 30.0
    """Seconds a read waits for the first list of its kind."""
    resync_period: float = 10 * 3600.0
    """Seconds after which handlers receive every object again; 0 disables resyncs."""
    stream_lists: bool = True
    """Request streaming lists; a server without them is listed in pages."""
    page_size: int = 500
    limits: rawjson.Limits = rawjson.DEFAULT
    """Only the metadata of an object beyond these limits is kept: get raises UndecodableObjectError, lists omit it."""
    random: RandomFunc = random.random

    def for_kind(self, kind: type[Object]) -> ByObject:
        """Return the settings for ``kind``, with defaults filled in.

        Raises:
            ValueError: a map of namespaces contains ``""`` (all namespaces) besides others.
        """
        own = self.by_object.get(kind)
        if own is None:
            own = next((value for key, value in self.by_object.items() if key.gvk == kind.gvk), ByObject())
        namespaced = kind.resource is None or kind.resource.namespaced
        namespaces = own.namespaces if own.namespaces is not None else self.default_namespaces
        return ByObject(
            labels=own.labels if own.labels is not None else self.default_labels,
            fields=own.fields if own.fields is not None else self.default_fields,
            namespaces=_distinct(namespaces) if namespaced else ALL_NAMESPACES,
            transform=own.transform or self.default_transform,
            limits=own.limits or self.limits,
        )


def _distinct(namespaces: Collection[str]) -> Collection[str]:
    if isinstance(namespaces, Mapping):
        if "" in namespaces and len(namespaces) > 1:
            raise ValueError('the namespace "" stands for all namespaces; selectors of others are ambiguous')
        return namespaces or ALL_NAMESPACES
    return tuple(dict.fromkeys(namespaces)) or ALL_NAMESPACES
