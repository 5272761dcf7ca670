# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Compares live objects with desired ones, and knows which part of a JobSet may change in place.

Everything here is pure and works on wire forms (plain JSON). The API server has the last word: a difference found here is
a reason to send a request, never a reason to delete.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

Wire = dict[str, Any]

_ITEM_KEYS: Final = ("name", "uid", "mountPath", "devicePath")
"""Fields by which a list of maps may be keyed: the first that every item has, each with another value."""

_ATOMIC: Final = frozenset({"nodeSelector", "tolerations", "command", "args"})
"""Maps and lists with one owner: more in the live one is a difference too."""

_METADATA: Final = ("labels", "annotations", "ownerReferences")
"""The metadata that a desired object sets; the server manages the rest."""

_POD_METADATA: Final = frozenset({"labels", "annotations"})
_POD_SPEC: Final = frozenset({"nodeSelector", "tolerations", "schedulingGates"})
_JOB_SET_SPEC: Final = frozenset({"suspend", "coordinator", "ttlSecondsAfterFinished"})

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})
_DEFAULTS: Final[Mapping[str, Any]] = MappingProxyType(
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
    }
)
"""What JobSet's CRD and webhook set in a field that is left out. An entry missing here costs a request after a restart."""


def covers(live: Any, desired: Any, defaults: Mapping[str, Any] = _NONE) -> bool:
    """Return True if every field of ``desired`` is in ``live`` with an equal value; live may have more.

    Keyed lists are compared key by key in any order, others item by item and at the same length. An empty map or list
    equals an absent one, and a field that live leaves out equals its entry in ``defaults``.
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


def equal(live: Any, desired: Any) -> bool:
    """Return True if each covers the other, fields that JobSet defaults apart."""
    return covers(live, desired) and covers(desired, live, _DEFAULTS)


def _covers_list(live: list[Any], desired: list[Any], defaults: Mapping[str, Any]) -> bool:
    key = _item_key(live, desired)
    if key is None:
        return len(live) == len(desired) and all(
            covers(left, right, defaults) for left, right in zip(live, desired, strict=True)
        )
    by_key = {item[key]: item for item in live}
    return all(item[key] in by_key and covers(by_key[item[key]], item, defaults) for item in desired)


def _item_key(*lists: list[Any]) -> str | None:
    if not all(isinstance(item, dict) for items in lists for item in items):
        return None
    return next((key for key in _ITEM_KEYS if all(_keyed_by(items, key) for items in lists)), None)


def _keyed_by(items: list[Any], key: str) -> bool:
    values = [item.get(key) for item in items]
    return all(isinstance(value, str) for value in values) and len(set(values)) == len(values)


def desired_part(obj: Wire) -> Wire:
    """Return the part of ``obj`` that a desired object sets: no status, and of the metadata what clients write."""
    metadata = obj.get("metadata", {})
    ours = {key: metadata[key] for key in _METADATA if metadata.get(key)}
    return {**{key: value for key, value in obj.items() if key != "status"}, "metadata": ours}


def content(obj: Wire) -> Wire:
    """Return ``obj`` without what changes with every write: status, resourceVersion, generation, managedFields."""
    metadata = _without(obj.get("metadata", {}), {"resourceVersion", "generation", "managedFields"})
    return {**_without(obj, {"status"}), "metadata": metadata}


def _without(data: Wire, fields: set[str] | frozenset[str]) -> Wire:
    return {key: value for key, value in data.items() if key not in fields}


class JobSetRule:
    """What may happen to a live JobSet.

    JobSet lets ``suspend``, ``coordinator``, ``ttlSecondsAfterFinished`` and the scheduling of the pods of a suspended JobSet
    change. The rest is fixed: JobSet's webhook refuses a change, and without the webhook the existing Jobs do not follow it.
    """

    def __init__(self, live: Wire) -> None:
        self._live = live
        self._jobs: list[Wire] = live.get("status", {}).get("replicatedJobsStatus") or []
        self.suspended: bool = bool(live.get("spec", {}).get("suspend"))
        self.observed: bool = bool(self._jobs)
        """Whether JobSet's controller has reconciled it, and so may have created Jobs."""
        self.active: bool = any(job.get("active") or job.get("ready") for job in self._jobs)

    def holds(self, desired: Wire) -> bool:
        """Return True if the fixed part is as desired, as far as that shows without asking the server."""
        return equal(_fixed(self._live), _fixed(desired))

    def keeps(self, answer: Wire) -> bool:
        """Return True if ``answer``, the server's preview of a change, has the same fixed part."""
        return _fixed(answer) == _fixed(self._live)

    def suspended_as_it_is(self, desired: Wire) -> Wire:
        """Return the apply configuration that suspends the live JobSet and leaves the rest of its spec exactly as it is."""
        return {**desired, "spec": {**self._live.get("spec", {}), "suspend": True}}


def _fixed(job_set: Wire) -> Wire:
    spec = _without(job_set.get("spec", {}), _JOB_SET_SPEC)
    return {**spec, "replicatedJobs": [_fixed_job(job) for job in spec.get("replicatedJobs") or ()]}


def _fixed_job(job: Wire) -> Wire:
    template = job.get("template", {})
    job_spec = template.get("spec", {})
    pod = job_spec.get("template", {})
    metadata, spec = (
        _without(pod.get("metadata", {}), _POD_METADATA),
        _without(pod.get("spec", {}), _POD_SPEC),
    )
    return {
        **job,
        "template": {
            **template,
            "spec": {**job_spec, "template": {**pod, "metadata": metadata, "spec": spec}},
        },
    }
