# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Roles from ``+kubebuilder:rbac`` markers.

A marker has the fields ``groups``, ``resources`` and ``verbs``, and may have ``resourceNames``. A marker with
``namespace`` extends the Role of that namespace; any other marker extends the ClusterRole. A marker with ``urls`` and
``verbs`` gives the ClusterRole access to paths that are not resources.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from . import markers

Grant = tuple[str, str, str]
"""Group, resource and verb; for a path, an empty group, the path and the verb."""
Grants = dict[Grant, tuple[str, ...]]
"""Grants, each with the names of the objects to which the grant is restricted; an empty tuple means all objects."""
Rule = dict[str, list[str]]
"""A PolicyRule."""

_FIELDS: Final = ("groups", "resources", "resourceNames", "namespace", "urls")

CLUSTER: Final = ""
"""The key of the ClusterRole's grants. The key of other grants is their namespace."""


def grants_in(text: str) -> Grants:
    """Return the grants of a source text's markers that extend the ClusterRole.

    Raises:
        MarkerError: a marker lacks groups, resources or verbs; has an unknown field or one that it must not have; or
            has a URL that does not begin with ``/``.
    """
    return _by_namespace([text]).get(CLUSTER, {})


def collect(paths: Iterable[Path]) -> dict[str, Grants]:
    """Return the grants of the markers in Python files and folders, by namespace.

    Raises:
        MarkerError: as :func:`grants_in`.
        FileNotFoundError: a path does not exist.
    """
    return _by_namespace(path.read_text(encoding="utf-8") for path in markers.sources(*paths))


def merge(found: Iterable[Grants]) -> Grants:
    """Return the grants of several sources; a grant for all objects takes precedence over a grant that is restricted to
    names.
    """
    merged: Grants = {}
    for grants in found:
        for grant, names in grants.items():
            merged[grant] = _either(merged.get(grant), names)
    return merged


def rules(wanted: Iterable[Grant], named: Mapping[Grant, tuple[str, ...]] | None = None) -> list[Rule]:
    """Return compact rules: resources of a group with equal verbs share a rule, and so do groups with equal resources.

    ``named`` has the object names to which a grant is restricted.
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
    """Return the YAML of the ClusterRole with these grants, or of the Role in a namespace."""
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


def manifests(name: str, found: Mapping[str, Grants]) -> str:
    """Return the YAML of the ClusterRole and of the Role of each namespace, all with the same name."""
    wanted = found or {CLUSTER: {}}
    return "---\n".join(manifest(name, grants, namespace) for namespace, grants in sorted(wanted.items()))


def _by_namespace(texts: Iterable[str]) -> dict[str, Grants]:
    found: dict[str, list[Grants]] = {}
    for text in texts:
        for fields in markers.fields_of(text, "rbac", ("verbs",), _FIELDS):
            names = tuple(filter(None, fields.get("resourceNames", ())))
            grants = itertools.product(*_granted(fields), fields["verbs"])
            found.setdefault(markers.one(fields, "namespace"), []).append(dict.fromkeys(grants, names))
    return {namespace: merge(each) for namespace, each in found.items()}


def _granted(fields: markers.Fields) -> tuple[list[str], list[str]]:
    """Return the groups and resources of a marker, or an empty group and its paths."""
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
    """Return the names that two markers of one grant allow in total."""
    if before is None:
        return names
    return tuple(sorted({*before, *names})) if before and names else ()


def _scalar(value: str) -> str:
    """Quote values that YAML would not read as plain strings: the core group, and ``*``."""
    return value if value.strip("*") else f'"{value}"'
