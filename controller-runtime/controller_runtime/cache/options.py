# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The settings of a cache: which objects of each kind it keeps, and how it lists and watches them."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Collection, Mapping
from typing import Final

from controller_runtime import client
from controller_runtime.machinery import Object, arguments, rawjson
from controller_runtime.machinery.backoff import RandomFunc

from .codec import Transform

ALL_NAMESPACES: Final[Collection[str]] = ("",)


@dataclasses.dataclass(frozen=True, slots=True)
class InNamespace:
    """The selectors for one kind in one namespace. An unset selector is taken from the kind's :class:`ByObject`."""

    labels: client.LabelSelectorLike | None = None
    fields: Mapping[str, str] | str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ByObject:
    """Which objects of one kind are cached. Unset fields are taken from :class:`Options`."""

    labels: client.LabelSelectorLike | None = None
    fields: Mapping[str, str] | str | None = None
    """A field selector for the server: the value that each field must have, or the text of the selector."""
    namespaces: Collection[str] | Mapping[str, InNamespace | None] | None = None
    """The namespaces to cache, each with its own list and watch. ``("",)`` caches all of them with one list and watch.
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
    """Settings by class. A class without its own entry uses the entry of another class of the same kind."""
    default_namespaces: Collection[str] = ALL_NAMESPACES
    default_labels: client.LabelSelectorLike | None = None
    default_fields: Mapping[str, str] | str | None = None
    default_transform: Transform | None = None
    read_timeout: float = 30.0
    """Maximum seconds for which a read waits until its kind has been listed."""
    resync_period: float = 10 * 3600.0
    """Seconds after which handlers receive every object again; 0 disables resyncs."""
    stream_lists: bool = True
    """Whether to request streaming lists. If the server does not support them, lists are requested in pages."""
    page_size: int = 500
    limits: rawjson.Limits = rawjson.DEFAULT
    """If an object exceeds these limits, only its metadata is kept. ``get`` then raises UndecodableObjectError, and
    ``list`` omits the object."""
    random: RandomFunc = random.random

    def __post_init__(self) -> None:
        """Raise TypeError for a value of a wrong type, such as a text instead of a list of namespaces."""
        for options in (self, *self.by_object.values()):
            if problem := arguments.problem_of(options):
                raise TypeError(f"cache.{type(options).__name__}: {problem}")

    def for_kind(self, kind: type[Object]) -> ByObject:
        """Return the settings for ``kind``, with defaults filled in.

        Raises:
            ValueError: a map of namespaces contains ``""`` (all namespaces) and also other namespaces.
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
