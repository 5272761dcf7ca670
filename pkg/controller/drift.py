# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Whether a live object still is what we want, and what of it may still be sent.

All functions are pure and work on wire forms (plain JSON). A :class:`Rule` knows one kind's immutable
fields; it is asked twice: which part of an object can change at all, and what to apply so that only this
part changes. See ``docs/adr`` on children that are applied again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.machinery.gvk import GVK

Wire = dict[str, Any]

_ITEM_KEYS: Final = ("name", "uid", "mountPath", "devicePath")
"""Fields by which a list of maps may be keyed; the first that every item has, each another value, counts."""

_ATOMIC: Final = frozenset({"nodeSelector", "tolerations", "command", "args"})
"""Maps and lists with one owner: more in the live one is a difference too."""

_METADATA: Final = ("labels", "annotations", "ownerReferences")
"""What of an object's metadata we say; the rest is the server's."""

_POD_METADATA: Final = ("labels", "annotations")
_POD_SPEC: Final = ("nodeSelector", "tolerations", "schedulingGates")
_JOBSET_MUTABLE: Final = ("suspend", "coordinator", "ttlSecondsAfterFinished")


@dataclass(frozen=True, slots=True)
class Rule:
    """What of a kind may change after its creation."""

    mutable: Callable[[Wire, Wire, Wire], Wire]
    """Of the last argument, live or desired, the part that may change, given (live, desired, which)."""
    compose: Callable[[Wire, Wire], Wire]
    """The apply configuration that makes live desired, where it may, and leaves the rest as it lives."""
    kept: Callable[[Wire, Wire], list[str]]
    """The names of what is desired otherwise than it lives and cannot change any more."""
    essence: Callable[[Wire], Wire]
    """What of a desired object is enough to compose it later with a live one."""


def rule_for(gvk: GVK) -> Rule:
    """Return the rule of a kind; by default everything but the status may change."""
    return _JOBSET if gvk == JobSet.gvk else _ANYTHING


def covers(live: Any, desired: Any) -> bool:
    """Tell whether every field of ``desired`` is in ``live`` with an equal value; live may have more.

    Keyed lists are compared key by key in any order, others item by item and at the same length. An empty
    map or list is covered by none.
    """
    if isinstance(desired, dict):
        if live is None:
            live = {}
        return isinstance(live, dict) and all(
            (live.get(key) or None) == (value or None) if key in _ATOMIC else covers(live.get(key), value)
            for key, value in desired.items()
        )
    if isinstance(desired, list):
        if live is None:
            live = []
        return isinstance(live, list) and _covers_list(live, desired)
    return type(live) is type(desired) and bool(live == desired)


def _covers_list(live: list[Any], desired: list[Any]) -> bool:
    key = _item_key(live, desired)
    if key is None:
        return len(live) == len(desired) and all(map(covers, live, desired))
    by_key = {item[key]: item for item in live}
    return all(covers(by_key.get(item[key]), item) for item in desired)


def _item_key(*lists: list[Any]) -> str | None:
    if not all(isinstance(item, dict) for items in lists for item in items):
        return None
    for key in _ITEM_KEYS:
        if all(_keyed_by(items, key) for items in lists):
            return key
    return None


def _keyed_by(items: list[Any], key: str) -> bool:
    values = [item.get(key) for item in items]
    return all(isinstance(value, str) for value in values) and len(set(values)) == len(values)


def content(obj: Wire) -> Wire:
    """Return ``obj`` without what changes of itself: status, resourceVersion, generation, managedFields."""
    metadata = {
        key: value
        for key, value in obj.get("metadata", {}).items()
        if key not in ("resourceVersion", "generation", "managedFields")
    }
    return {**{key: value for key, value in obj.items() if key != "status"}, "metadata": metadata}


def _anything_mutable(_live: Wire, _desired: Wire, which: Wire) -> Wire:
    metadata = which.get("metadata", {})
    ours = {key: metadata[key] for key in _METADATA if metadata.get(key)}
    return {**{key: value for key, value in which.items() if key != "status"}, "metadata": ours}


def _anything(live: Wire, desired: Wire) -> Wire:
    return _identified(live, desired)


def _identified(live: Wire, desired: Wire) -> Wire:
    # With the uid the request fails, instead of creating, if the object is gone by now.
    metadata = dict(desired.get("metadata", {}))
    if uid := live.get("metadata", {}).get("uid"):
        metadata["uid"] = uid
    return {**desired, "metadata": metadata}


def _jobset_mutable(live: Wire, desired: Wire, which: Wire) -> Wire:
    metadata, spec = which.get("metadata", {}), which.get("spec", {})
    part: Wire = {
        "metadata": {key: metadata[key] for key in _METADATA if key in metadata},
        "spec": {key: spec[key] for key in _JOBSET_MUTABLE if key in spec},
    }
    if _suspended(live, desired):
        live_names = {job.get("name") for job in live.get("spec", {}).get("replicatedJobs") or ()}
        part["pods"] = {
            job["name"]: _pod_part(job)
            for job in spec.get("replicatedJobs") or ()
            if job.get("name") in live_names
        }
    return part


def _compose_jobset(live: Wire, desired: Wire) -> Wire:
    live_spec, desired_spec = live.get("spec", {}), desired.get("spec", {})
    spec = {key: value for key, value in live_spec.items() if key not in _JOBSET_MUTABLE}
    spec |= {key: desired_spec[key] for key in _JOBSET_MUTABLE if key in desired_spec}
    if _suspended(live, desired) and "replicatedJobs" in live_spec:
        wanted = {job.get("name"): job for job in desired_spec.get("replicatedJobs") or ()}
        spec["replicatedJobs"] = [
            _with_pod_part(job, _pod_part(wanted[job.get("name")])) if job.get("name") in wanted else job
            for job in live_spec["replicatedJobs"]
        ]
    return {**_identified(live, desired), "spec": spec}


def _suspended(live: Wire, desired: Wire) -> bool:
    """JobSet lets the pods' scheduling change while it is, or is being, suspended."""
    return bool(live.get("spec", {}).get("suspend") or desired.get("spec", {}).get("suspend"))


def _pod_part(job: Wire) -> Wire:
    template = job.get("template", {}).get("spec", {}).get("template", {})
    metadata, spec = template.get("metadata", {}), template.get("spec", {})
    return {
        "metadata": {key: metadata[key] for key in _POD_METADATA if metadata.get(key)},
        "spec": {key: spec[key] for key in _POD_SPEC if spec.get(key)},
    }


def _with_pod_part(job: Wire, part: Wire) -> Wire:
    template = job.get("template", {})
    job_spec = template.get("spec", {})
    pod = job_spec.get("template", {})
    metadata = {key: value for key, value in pod.get("metadata", {}).items() if key not in _POD_METADATA}
    spec = {key: value for key, value in pod.get("spec", {}).items() if key not in _POD_SPEC}
    merged = {**pod, "metadata": metadata | part["metadata"], "spec": spec | part["spec"]}
    if not merged["metadata"]:
        del merged["metadata"]
    return {**job, "template": {**template, "spec": {**job_spec, "template": merged}}}


def _nothing_kept(_live: Wire, _desired: Wire) -> list[str]:
    return []


def _kept_of_jobset(live: Wire, desired: Wire) -> list[str]:
    composed = _compose_jobset(live, desired)["spec"]
    return [
        f"spec.{key}"
        for key, value in desired.get("spec", {}).items()
        if not covers(composed.get(key), value)
    ]


def _all_of(desired: Wire) -> Wire:
    return desired


def _essence_of_jobset(desired: Wire) -> Wire:
    spec = {key: value for key, value in desired.get("spec", {}).items() if key in _JOBSET_MUTABLE}
    return {**desired, "spec": spec}


_ANYTHING: Final = Rule(_anything_mutable, _anything, _nothing_kept, _all_of)
_JOBSET: Final = Rule(_jobset_mutable, _compose_jobset, _kept_of_jobset, _essence_of_jobset)
