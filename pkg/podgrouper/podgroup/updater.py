# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Compares a stored pod group with the desired one, and updates it."""

from __future__ import annotations

from collections.abc import Container, Mapping

from controller_runtime.apis.meta.v1 import OwnerReference
from controller_runtime.machinery import names

from pkg.apis.kai.v2alpha2 import PodGroup, PodGroupSpec, SubGroup, TopologyConstraint


def pod_groups_equal(old: PodGroup, new: PodGroup) -> bool:
    """Return True if ``old`` matches ``new``. Labels and annotations that only ``old`` has are ignored.

    An unset field is equal to the zero value of its type in Go: an empty string, 0 or, for a pointer, nil. A group
    without a minimum requires one pod. Missing subgroups are equal to an empty list. If ``new`` has a subgroup with
    ``minMember: 0``, ``old`` must have the 0, too: KAI v0.13 stored no zeros, and later schedulers refuse a subgroup
    without a number.
    """
    return (
        _has_all(old.labels, new.labels)
        and _has_all(old.annotations, new.annotations)
        and _spec(old.spec) == _spec(new.spec)
        and _sub_groups_equal(old.spec.sub_groups or [], new.spec.sub_groups or [])
        and _owners(old.metadata.owner_references) == _owners(new.metadata.owner_references)
    )


def update_pod_group(old: PodGroup, new: PodGroup) -> None:
    """Update the labels, annotations, owners and spec of ``old`` to match ``new``.

    Other labels and annotations of ``old`` are kept, unless they do not fit, and so are unknown fields of its spec.
    """
    if new.metadata.annotations:
        merged = {**old.annotations, **new.metadata.annotations}
        for key in excess(merged, kept=new.metadata.annotations):
            del merged[key]
        old.metadata.annotations = merged
    if new.metadata.labels:
        old.metadata.labels = {**old.labels, **new.metadata.labels}
    unknown = dict(old.spec.unknown_fields)
    old.spec = new.spec.shallow_copy()
    old.spec.set_unknown_fields(unknown)
    old.metadata.owner_references = new.metadata.owner_references


def excess(annotations: Mapping[str, str], *, kept: Container[str] = ()) -> list[str]:
    """Return the largest annotations, without which an API server accepts the others; none of them is in ``kept``."""
    sizes = {key: len(key.encode()) + len(value.encode()) for key, value in annotations.items()}
    over, keys = sum(sizes.values()) - names.ANNOTATIONS_MAX_SIZE, list[str]()
    for key in sorted(sizes, key=lambda key: (-sizes[key], key)) if over > 0 else ():
        if over > 0 and key not in kept:
            keys.append(key)
            over -= sizes[key]
    return keys


def _has_all(held: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return wanted.items() <= held.items()


def _spec(spec: PodGroupSpec) -> tuple[object, ...]:
    return (
        1 if spec.min_member is None and spec.min_sub_group is None else spec.min_member,
        spec.min_sub_group,
        spec.preemption_delay,
        spec.staleness_grace_period,
        spec.queue or "",
        spec.priority_class_name or "",
        spec.preemptibility or "",
        spec.parallelism or 0,
        spec.completions or 0,
        spec.backoff_limit or 0,
        spec.mark_unschedulable,
        spec.scheduling_backoff,
        _topology(spec.topology_constraint) or ("", "", ""),
    )


def _sub_groups_equal(old: list[SubGroup], new: list[SubGroup]) -> bool:
    return len(old) == len(new) and all(
        _sub_group(held) == _sub_group(wanted)
        and (held.min_member == wanted.min_member or (wanted.min_member is None and not held.min_member))
        for held, wanted in zip(old, new, strict=True)
    )


def _sub_group(group: SubGroup) -> tuple[object, ...]:
    return group.name, group.min_sub_group, group.parent, _topology(group.topology_constraint)


def _topology(constraint: TopologyConstraint | None) -> tuple[str, str, str] | None:
    if constraint is None:
        return None
    return (
        constraint.preferred_topology_level or "",
        constraint.required_topology_level or "",
        constraint.topology or "",
    )


def _owners(owners: list[OwnerReference] | None) -> list[tuple[object, ...]]:
    return [
        (each.api_version, each.kind, each.name, each.uid, each.controller, each.block_owner_deletion)
        for each in owners or ()
    ]
