# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Roles from ``+kubebuilder:rbac`` markers.

A marker has the fields ``groups``, ``resources`` and ``verbs``, and may have ``resourceNames``. If it has the field
``namespace``, it adds a rule to the Role in that namespace, otherwise to the ClusterRole. A marker with ``urls`` and
``verbs`` lets the ClusterRole access URL paths such as ``/metrics``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from . import markers

Grant = tuple[str, str, str]
"""A permission: (group, resource, verb), or ("", path, verb) for a URL path."""
Grants = dict[Grant, tuple[str, ...]]
"""For each grant, the names of the objects for which it is valid. An empty tuple means all objects."""
Rule = dict[str, list[str]]
"""A PolicyRule."""

_FIELDS: Final = ("groups", "resources", "resourceNames", "namespace", "urls")

CLUSTER: Final = ""
"""The key for the grants of the ClusterRole, in place of a namespace."""


def grants_in(text: str) -> Grants:
    """Return the grants of a source text's markers that extend the ClusterRole.

    Raises:
        MarkerError: a marker lacks groups, resources or verbs; or it has an unknown field; or it has ``urls`` and a
            field other than ``verbs``; or a URL does not begin with ``/``.
    """
    return _by_namespace([text]).get(CLUSTER, {})


def collect(paths: Iterable[Path]) -> dict[str, Grants]:
    """Return the grants of all markers in Python files and folders: for each namespace, and for the ClusterRole.

    Raises:
        MarkerError: as :func:`grants_in`.
        FileNotFoundError: a path does not exist.
    """
    return _by_namespace(path.read_text(encoding="utf-8") for path in markers.sources(*paths))


def merge(several: Iterable[Grants]) -> Grants:
    """Join grants. If one source grants a permission for all objects and another one only for some, it is for all."""
    merged: Grants = {}
    for grants in several:
        for grant, names in grants.items():
            merged[grant] = _either(merged.get(grant), names)
    return merged


def rules(wanted: Iterable[Grant], named: Mapping[Grant, tuple[str, ...]] | None = None) -> list[Rule]:
    """Return few rules for many grants. Resources with equal verbs share a rule, and so do groups with equal resources.

    If a grant is valid only for some objects, ``named`` contains their names.
    """
    wanted = set(wanted)
    paths = {grant for grant in wanted if grant[1].startswith("/")}
    return _resource_rules(wanted - paths, named or {}) + _path_rules(paths)


def _path_rules(wanted: Iterable[Grant]) -> list[Rule]:
    verbs: dict[str, list[str]] = {}
    for _, path, verb in sorted(wanted):
        verbs.setdefault(path, []).append(verb)
    paths: dict[tuple[str, ...], list[str]] = {}
    for path, allowed in verbs.items():
        paths.setdefault(tuple(allowed), []).append(path)
    return [{"nonResourceURLs": same, "verbs": list(allowed)} for allowed, same in paths.items()]


def _resource_rules(wanted: Iterable[Grant], named: Mapping[Grant, tuple[str, ...]]) -> list[Rule]:
    verbs: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for group, resource, verb in sorted(wanted):
        names = named.get((group, resource, verb), ())
        verbs.setdefault((group, resource, names), []).append(verb)
    resources: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for (group, resource, names), allowed in verbs.items():
        resources.setdefault((group, tuple(allowed), names), []).append(resource)
    groups: dict[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for (group, allowed_verbs, names), shared in resources.items():
        groups.setdefault((tuple(shared), allowed_verbs, names), []).append(group)
    made = [
        {"apiGroups": same, "resources": list(key[0])}
        | ({"resourceNames": list(key[2])} if key[2] else {})
        | {"verbs": list(key[1])}
        for key, same in groups.items()
    ]
    return sorted(made, key=lambda rule: (rule["apiGroups"], rule["resources"]))


def manifest(name: str, grants: Grants, namespace: str = CLUSTER) -> str:
    """Return the YAML of a ClusterRole with these grants or, if ``namespace`` is not empty, of a Role."""
    lines = ["apiVersion: rbac.authorization.k8s.io/v1\n"]
    lines.append(f"kind: {'Role' if namespace else 'ClusterRole'}\nmetadata:\n  name: {name}\n")
    if namespace:
        lines.append(f"  namespace: {namespace}\n")
    lines.append("rules:\n" if grants else "rules: []\n")
    for rule in rules(grants, grants):
        lead = "  - "
        for key, values in rule.items():
            lines.append(f"{lead}{key}: [{', '.join(map(_scalar, values))}]\n")
            lead = "    "
    return "".join(lines)


def manifests(name: str, by_namespace: Mapping[str, Grants]) -> str:
    """Return the YAML of the ClusterRole and of the Role of each namespace, all with the same name."""
    wanted = by_namespace or {CLUSTER: {}}
    return "---\n".join(manifest(name, grants, namespace) for namespace, grants in sorted(wanted.items()))


def _by_namespace(texts: Iterable[str]) -> dict[str, Grants]:
    by_namespace: dict[str, list[Grants]] = {}
    for text in texts:
        for fields in markers.fields_of(text, "rbac", ("verbs",), _FIELDS):
            names = tuple(filter(None, fields.get("resourceNames", ())))
            grants = itertools.product(*_granted(fields), fields["verbs"])
            by_namespace.setdefault(markers.one(fields, "namespace"), []).append(dict.fromkeys(grants, names))
    return {namespace: merge(several) for namespace, several in by_namespace.items()}


def _granted(fields: markers.Fields) -> tuple[list[str], list[str]]:
    """Return the groups and resources of a marker; for a marker with ``urls``, an empty group and the URL paths."""
    if "urls" not in fields:
        for name in ("groups", "resources"):
            if name not in fields:
                raise markers.MarkerError(f"a marker +kubebuilder:rbac has no field {name}")
        return fields["groups"], fields["resources"]
    if other := sorted(fields.keys() - {"urls", "verbs"}):
        raise markers.MarkerError(f"a marker +kubebuilder:rbac with urls has the field {other[0]}")
    for path in fields["urls"]:
        if not path.startswith("/"):
            raise markers.MarkerError(
                f"a marker +kubebuilder:rbac has the URL {path}, which does not begin with /"
            )
    return [""], fields["urls"]


def _either(before: tuple[str, ...] | None, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the object names that either of two markers allows; an empty tuple if one allows all objects."""
    if before is None:
        return names
    return tuple(sorted({*before, *names})) if before and names else ()


def _scalar(value: str) -> str:
    """Quote the values that need quotes in YAML: the empty string (the core group) and ``*``."""
    return value if value.strip("*") else f'"{value}"'
