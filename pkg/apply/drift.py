# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Compares live and desired objects as plain JSON.

A difference that is found here causes an apply, never a deletion: the API server decides whether a change is possible.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from controller_runtime.machinery import JSON

Wire = dict[str, JSON]
"""The JSON of an object or of a part of it."""

_ITEM_KEYS: Final = ("name", "uid", "mountPath", "devicePath", "containerPort")
"""Possible keys of a list of maps, see :func:`item_key`.

They are not looked up in the schemas of OpenAPI, which name other keys for some of these lists: the comparison works
for every kind without its schema, and a wrong key causes at most a superfluous apply.
"""

_ATOMIC: Final = frozenset({"nodeSelector", "tolerations", "command", "args"})
"""Maps and lists that an apply replaces as a whole: an additional item in ``live`` is a difference, too."""

_METADATA: Final = ("labels", "annotations", "ownerReferences")
"""Metadata fields that desired objects may set. The server manages the other fields."""

_NONE: Final[Mapping[str, JSON]] = MappingProxyType({})
_DEFAULTS: Final[Mapping[str, JSON]] = MappingProxyType(
    {
        "replicas": 1,
        "groupName": "default",
        "restartStrategy": "Recreate",
        "protocol": "TCP",
        "name": "",
        "operator": "All",
        "startupPolicyOrder": "AnyOrder",
        "completionMode": "Indexed",
        "restartPolicy": "OnFailure",
        "enableDNSHostnames": True,
        "publishNotReadyAddresses": True,
        "priority": 0,
        "whenDeleted": "Delete",
    }
)
"""The defaults of unset fields. They are set by JobSet's CRD, by JobSet's webhook or by Kubernetes' gang API.

A default that is missing here costs one request after a restart.
"""


def covers(live: object, desired: object, defaults: Mapping[str, JSON] = _NONE) -> bool:
    """Return True if every field of ``desired`` is in ``live`` with an equal value. ``live`` may have more fields.

    A keyed list in ``live`` may have more items; other lists are compared item by item. An empty map or list equals an
    absent one. If a field is unset in ``live``, its value in ``defaults`` is compared.
    """
    if isinstance(desired, dict):
        live = {} if live is None else live
        return isinstance(live, dict) and all(
            (live.get(key) or None) == (value or None)
            if key in _ATOMIC
            else covers(live.get(key, defaults.get(key)), value, defaults)
            for key, value in desired.items()
        )
    if isinstance(desired, list):
        live = [] if live is None else live
        return isinstance(live, list) and _covers_list(live, desired, defaults)
    return type(live) is type(desired) and bool(live == desired)


def equal(live: object, desired: object) -> bool:
    """Return True if ``live`` and ``desired`` have equal fields.

    A field that only ``live`` has is ignored if it has its default value.
    """
    return covers(live, desired) and covers(desired, live, _DEFAULTS)


def _covers_list(live: list[JSON], desired: list[JSON], defaults: Mapping[str, JSON]) -> bool:
    key = item_key(live, desired)
    if key is None:
        return len(live) == len(desired) and all(
            covers(left, right, defaults) for left, right in zip(live, desired, strict=True)
        )
    wanted = {item[key] for item in desired}
    found = [item for item in live if item[key] in wanted]
    # The order matters: an environment variable may refer to an earlier one.
    return len(found) == len(desired) and all(
        left[key] == right[key] and covers(left, right, defaults)
        for left, right in zip(found, desired, strict=True)
    )


def item_key(*lists: list[JSON]) -> str | None:
    """Return the field that identifies the items of each of the lists, or None if there is no such field.

    It is the first of the possible keys that has a different string or integer in every item of a list.
    """
    if not all(isinstance(item, dict) for items in lists for item in items):
        return None
    return next((key for key in _ITEM_KEYS if all(_keyed_by(items, key) for items in lists)), None)


def _keyed_by(items: list[JSON], key: str) -> bool:
    values = [item.get(key) for item in items]
    return all(type(value) in (str, int) for value in values) and len(set(values)) == len(values)


def without_emptied(live: JSON, desired: JSON) -> JSON:
    """Return ``desired``, but leave out each empty map that has entries in ``live``.

    Applying an empty map can remove the last entry of the live map. The server then stores null in place of the map,
    and the schema of a custom resource refuses null. An apply that leaves out the map removes the entries, too.
    """
    if isinstance(desired, dict) and isinstance(live, dict):
        return {
            key: without_emptied(live.get(key), value)
            for key, value in desired.items()
            if value != {} or not live.get(key)
        }
    if isinstance(desired, list) and isinstance(live, list):
        return [
            without_emptied(_counterpart(live, desired, place), item) for place, item in enumerate(desired)
        ]
    return desired


def _counterpart(live: list[JSON], desired: list[JSON], place: int) -> JSON:
    """Return the live item for ``desired[place]``: it has the same key or, if there are no keys, the same place."""
    key = item_key(live, desired)
    if key is None:
        return live[place] if place < len(live) else None
    return next((item for item in live if item[key] == desired[place][key]), None)


def content(obj: Wire) -> Wire:
    """Return the part of ``obj`` that clients write, which excludes the status and server-managed metadata."""
    metadata = obj.get("metadata", {})
    ours: Wire = {}
    for key in _METADATA:
        if held := metadata.get(key):
            ours[key] = held
    result = {**obj, "metadata": ours}
    result.pop("status", None)
    return result


def without(data: Wire, fields: set[str] | frozenset[str]) -> Wire:
    """Return ``data`` without ``fields``."""
    return {key: value for key, value in data.items() if key not in fields}
