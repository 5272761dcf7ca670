# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Field ownership as server-side apply knows it, on plain JSON, for the in-memory API server.

A field set is a set of paths. A step of a path is a map's key, an :class:`Item` of a list whose items are
told apart by keys, or a :class:`Member` of a list that is a set. Which lists and maps are which is a
property of a kind's schema; here the names that Kubernetes' own types use decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from pkg.apis.machinery.base import JSON
from pkg.apis.machinery.patch import same


class Item(NamedTuple):
    """The item of a list whose key fields hold these values."""

    keys: tuple[tuple[str, Any], ...]


class Member(NamedTuple):
    """The member of a set with this value."""

    value: Any


Step = str | Item | Member
Path = tuple[Step, ...]
FieldSet = frozenset[Path]

_KEYS: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "conditions": (("type",),),
    "containers": (("name",),),
    "initContainers": (("name",),),
    "ephemeralContainers": (("name",),),
    "env": (("name",),),
    "volumes": (("name",),),
    "volumeMounts": (("mountPath",),),
    "volumeDevices": (("devicePath",),),
    "imagePullSecrets": (("name",),),
    "secrets": (("name",),),
    "schedulingGates": (("name",),),
    "resourceClaims": (("name",),),
    "claims": (("name",),),
    "hostAliases": (("ip",),),
    "topologySpreadConstraints": (("topologyKey", "whenUnsatisfiable"),),
    "ports": (("containerPort", "protocol"), ("port", "protocol")),
    "ownerReferences": (("uid",),),
    "replicatedJobs": (("name",),),
    "replicatedJobsStatus": (("name",),),
    "jobsStatus": (("name",),),
    "webhooks": (("name",),),
}
_DEFAULTS: Final[Mapping[str, str]] = {"protocol": "TCP"}
_SETS: Final = frozenset({"finalizers"})
_ATOMIC: Final = frozenset(
    {
        "selector",
        "labelSelector",
        "nodeSelector",
        "secretKeyRef",
        "configMapKeyRef",
        "fieldRef",
        "resourceFieldRef",
    }
)
_NOBODYS: Final[frozenset[Path]] = frozenset(
    {("apiVersion",), ("kind",)}
    | {
        ("metadata", name)
        for name in (
            "name",
            "namespace",
            "generateName",
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "managedFields",
        )
    }
)
_MISSING: Final = object()


def fields_of(obj: Mapping[str, JSON]) -> FieldSet:
    """Return the paths of everything that ``obj`` sets and somebody can own."""
    return frozenset(
        path for path in _walk(obj, ()) if path and path not in _NOBODYS and path[:2] not in _NOBODYS
    )


def changed(old: Mapping[str, JSON], new: Mapping[str, JSON]) -> FieldSet:
    """Return the paths that ``new`` sets and ``old`` has not, or has with another value."""
    return frozenset(path for path in fields_of(new) if not same(value_at(old, path), value_at(new, path)))


def value_at(obj: JSON, path: Path) -> JSON:
    """Return what stands at ``path``; a marker equal to nothing else where nothing does."""
    for position, step in enumerate(path):
        if isinstance(step, str):
            if not isinstance(obj, dict) or step not in obj:
                return _MISSING
            obj = obj[step]
        elif (index := _index(obj, path[position - 1], step)) is not None:
            obj = obj[index]
        else:
            return _MISSING
    # That an item is there is one thing, what it holds another, owned by the paths below it.
    return True if path and isinstance(path[-1], Item) else obj


def merge(live: JSON, config: JSON, name: Step = "") -> JSON:
    """Return ``live`` with ``config`` applied over it; lists with keys merge, new items come last."""
    if isinstance(live, dict) and isinstance(config, dict) and name not in _ATOMIC:
        merged = dict(live)
        for key, value in config.items():
            merged[key] = merge(live[key], value, key) if key in live else value
        return merged
    if isinstance(live, list) and isinstance(config, list):
        if name in _SETS:
            return live + [value for value in config if value not in live]
        if not config and _keys(live, name):
            return live
        if _keys(config, name) and (not live or _keys(live, name)):
            items = list(live)
            for item, step in zip(config, _steps(config, name), strict=True):
                index = _index(items, name, step)
                if index is None:
                    items.append(item)
                else:
                    items[index] = merge(items[index], item)
            return items
    return config


def remove(obj: JSON, paths: Iterable[Path], *, kept: FieldSet = frozenset()) -> JSON:
    """Return ``obj`` without what stands at ``paths``, and without the maps and lists that this empties.

    An item of a list goes whole, with what the server filled in, unless a path in ``kept`` is below it.
    """
    needed = {path[:length] for path in kept for length in range(1, len(path) + 1)}
    for path in sorted(paths, key=len):
        if path not in needed:
            obj = _without(obj, path)
    return obj


def text(path: Path) -> str:
    """Return a path as the server's messages write it: ``.spec.containers[name="node"].image``."""
    parts: list[str] = []
    for step in path:
        if isinstance(step, str):
            parts.append(f".{step}")
        elif isinstance(step, Item):
            parts.append(f"[{','.join(f'{key}={_json(value)}' for key, value in step.keys)}]")
        else:
            parts.append(f"[={_json(step.value)}]")
    return "".join(parts)


def _walk(value: JSON, path: Path) -> Iterable[Path]:
    name = path[-1] if path else ""
    if isinstance(value, dict) and value and name not in _ATOMIC:
        for key, child in value.items():
            yield from _walk(child, (*path, key))
    elif isinstance(value, list) and value and name in _SETS:
        for member in value:
            yield (*path, Member(member))
    elif isinstance(value, list) and _keys(value, name):
        for item, step in zip(value, _steps(value, name), strict=True):
            yield (*path, step)
            yield from _walk(item, (*path, step))
    else:
        yield path


def _keys(items: list[JSON], name: Step) -> tuple[str, ...]:
    """The key fields of a list of that name, or nothing for a list that goes whole."""
    alternatives = _KEYS.get(name, ()) if isinstance(name, str) else ()
    for keys in alternatives:
        if items and all(isinstance(item, dict) and keys[0] in item for item in items):
            # Without schemas a key may hold anything; only a plain value tells items apart.
            plain = all(not isinstance(item.get(key), dict | list) for item in items for key in keys)
            return keys if plain else ()
    return ()


def _steps(items: list[JSON], name: Step) -> list[Step]:
    keys = _keys(items, name)
    return [Item(tuple((key, item.get(key, _DEFAULTS.get(key))) for key in keys)) for item in items]


def _index(items: JSON, name: Step, step: Step) -> int | None:
    if not isinstance(items, list):
        return None
    if isinstance(step, Member):
        return items.index(step.value) if step.value in items else None
    if not isinstance(step, Item) or not _keys(items, name):
        return None
    steps = _steps(items, name)
    return steps.index(step) if step in steps else None


def _without(obj: JSON, path: Path, name: Step = "") -> JSON:
    step, *rest = path
    place: str | int | None
    if isinstance(step, str):
        place = step if isinstance(obj, dict) and step in obj else None
    else:
        place = _index(obj, name, step)
        if isinstance(step, Item) and rest and rest[0] in dict(step.keys):
            place = None
    if place is None:
        return obj
    smaller: Any = obj.copy()
    before = smaller[place]
    after = _without(before, tuple(rest), step) if rest else None
    if after or (rest and not before):
        smaller[place] = after
    else:
        del smaller[place]
    return smaller


def _json(value: JSON) -> str:
    return msgspec.json.encode(value).decode()
