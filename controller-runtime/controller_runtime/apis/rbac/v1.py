# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Roles and their bindings."""

from typing import Annotated, ClassVar

from pydantic import Field

from controller_runtime.apis.meta.v1 import LabelSelector
from controller_runtime.machinery import Object, Struct


class PolicyRule(Struct):
    verbs: list[str] | None = None
    api_groups: list[str] | None = None
    resources: list[str] | None = None
    resource_names: list[str] | None = None
    non_resource_ur_ls: Annotated[list[str] | None, Field(alias="nonResourceURLs")] = None
    go_always: ClassVar[frozenset[str]] = frozenset({"verbs"})


class Subject(Struct):
    kind: str = ""
    api_group: str | None = None
    name: str = ""
    namespace: str | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"kind", "name"})


class RoleRef(Struct):
    api_group: str = ""
    kind: str = ""
    name: str = ""
    go_always: ClassVar[frozenset[str]] = frozenset({"api_group", "kind", "name"})


class AggregationRule(Struct):
    cluster_role_selectors: list[LabelSelector] | None = None


class Role(Object, group="rbac.authorization.k8s.io", version="v1", plural="roles"):
    rules: list[PolicyRule] | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"rules"})


class RoleBinding(Object, group="rbac.authorization.k8s.io", version="v1", plural="rolebindings"):
    subjects: list[Subject] | None = None
    role_ref: RoleRef | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"role_ref"})


class ClusterRole(
    Object, group="rbac.authorization.k8s.io", version="v1", plural="clusterroles", namespaced=False
):
    rules: list[PolicyRule] | None = None
    aggregation_rule: AggregationRule | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"rules"})


class ClusterRoleBinding(
    Object, group="rbac.authorization.k8s.io", version="v1", plural="clusterrolebindings", namespaced=False
):
    subjects: list[Subject] | None = None
    role_ref: RoleRef | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"role_ref"})
