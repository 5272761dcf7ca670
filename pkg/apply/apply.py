# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Upserts: an item replaces the first item of the list that has the same key, or is appended to the list.

Each helper takes a list or ``None`` and returns the list to store. A list is changed in place. If ``None`` is passed, a
new list is returned, or ``None`` if there are no items. Items are shared with the caller: they are replaced, never
changed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable
from operator import attrgetter
from typing import TypeVar

from controller_runtime.apis.core.v1 import ContainerPort, EnvVar, EnvVarSource, Volume, VolumeMount

T = TypeVar("T")


def upsert_env_vars(env: list[EnvVar] | None, items: Iterable[EnvVar]) -> list[EnvVar] | None:
    """Upsert by name."""
    return _upsert_by(env, items, attrgetter("name"))


def upsert_port(
    ports: list[ContainerPort] | None, items: Iterable[ContainerPort]
) -> list[ContainerPort] | None:
    """Upsert by port number or name. As upstream, all ports without a name count as having the same name."""
    return _upsert(ports, items, attrgetter("container_port", "name"))


def upsert_volumes(volumes: list[Volume] | None, items: Iterable[Volume]) -> list[Volume] | None:
    """Upsert by name."""
    return _upsert_by(volumes, items, attrgetter("name"))


def upsert_volume_mounts(
    mounts: list[VolumeMount] | None, items: Iterable[VolumeMount]
) -> list[VolumeMount] | None:
    """Upsert by mount path."""
    return _upsert_by(mounts, items, attrgetter("mount_path"))


def env_vars(env: Iterable[EnvVar] | None) -> list[EnvVar]:
    """Convert each variable with :func:`env_var`. ``None`` counts as an empty list."""
    return list(map(env_var, env or ()))


def env_var(env: EnvVar) -> EnvVar:
    """Return a TrainJob's variable as it is applied: either with a reference or with a value, which may be empty.

    As upstream, the ``apiVersion`` of a reference to a field is dropped. If a reference to a resource lacks the
    container or the divisor, they are added. Unknown sources are kept (upstream drops them).
    """
    source = env.value_from
    if source is None:
        if env.value is not None:
            return env
        return env.model_copy(update={"value": env.value or ""})
    return env.model_copy(update={"value": None, "value_from": _env_var_source(source)})


def _env_var_source(source: EnvVarSource) -> EnvVarSource:
    update: dict[str, object] = {}
    if (by_field := source.field_ref) is not None:
        update["field_ref"] = by_field.model_copy(update={"api_version": None})
    if (by_resource := source.resource_field_ref) is not None:
        update["resource_field_ref"] = by_resource.model_copy(
            update={"container_name": by_resource.container_name or "", "divisor": by_resource.divisor or "0"}
        )
    if (by_config_map := source.config_map_key_ref) is not None:
        update["config_map_key_ref"] = by_config_map.model_copy(update={"name": by_config_map.name or ""})
    if (by_secret := source.secret_key_ref) is not None:
        update["secret_key_ref"] = by_secret.model_copy(update={"name": by_secret.name or ""})
    return source.model_copy(update=update)


def _upsert_by(items: list[T] | None, new: Iterable[T], key: Callable[[T], Hashable]) -> list[T] | None:
    """Upsert. Two items are the same if they have the same key."""
    if not items:  # like most lists of a template
        made = list({key(item): item for item in new}.values())
        if items is None:
            return made or None
        items.extend(made)
        return items
    places: dict[Hashable, int] | None = None
    for item in new:
        if places is None:
            places = {}
            for place, present in enumerate(items):
                places.setdefault(key(present), place)
        place = places.setdefault(key(item), len(items))
        if place == len(items):
            items.append(item)
        else:
            items[place] = item
    return items


def _upsert(
    items: list[T] | None, new: Iterable[T], keys: Callable[[T], tuple[Hashable, ...]]
) -> list[T] | None:
    """Upsert without searching the list for each item. Two items are the same if they share one of their keys."""
    new = list(new)
    if items is None and len(new) <= 1:  # like most lists of a template
        return new or None
    places: dict[Hashable, list[int]] | None = None
    for item in new:
        if items is None:
            items = []
        if places is None:
            places = {}
            for place, present in enumerate(items):
                for key in keys(present):
                    places.setdefault(key, []).append(place)
        place = min((_first(items, places, key, keys) for key in keys(item)), default=len(items))
        if place == len(items):
            items.append(item)
        else:
            items[place] = item
        for key in keys(item):
            heapq.heappush(places.setdefault(key, []), place)
    return items


def _first(
    items: list[T],
    places: dict[Hashable, list[int]],
    key: Hashable,
    keys: Callable[[T], tuple[Hashable, ...]],
) -> int:
    """Return the first index of ``key``, or the length of the list. Drop indices whose item no longer has the key."""
    found = places.get(key, [])
    while found and key not in keys(items[found[0]]):
        heapq.heappop(found)
    return found[0] if found else len(items)
