# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""CustomResourceDefinition."""

from typing import ClassVar

from pydantic import Field

from controller_runtime.machinery import JSON, Object, Struct


class CustomResourceDefinitionNames(Struct):
    plural: str = ""
    singular: str | None = None
    short_names: list[str] | None = None
    kind: str = ""
    list_kind: str | None = None
    categories: list[str] | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"plural", "kind"})


class CustomResourceColumnDefinition(Struct):
    name: str = ""
    type: str = ""
    format: str | None = None
    description: str | None = None
    priority: int | None = None
    json_path: str = ""
    go_always: ClassVar[frozenset[str]] = frozenset({"name", "type", "json_path"})


class CustomResourceSubresourceScale(Struct):
    spec_replicas_path: str = ""
    status_replicas_path: str = ""
    label_selector_path: str | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"spec_replicas_path", "status_replicas_path"})


class CustomResourceSubresources(Struct):
    status: dict[str, JSON] | None = None
    scale: CustomResourceSubresourceScale | None = None


class CustomResourceDefinitionVersion(Struct):
    name: str = ""
    served: bool = False
    storage: bool = False
    deprecated: bool | None = None
    deprecation_warning: str | None = None
    schema_: dict[str, JSON] | None = None
    subresources: CustomResourceSubresources | None = None
    additional_printer_columns: list[CustomResourceColumnDefinition] | None = None
    selectable_fields: list[dict[str, JSON]] | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"name", "served", "storage"})


class CustomResourceDefinitionSpec(Struct):
    group: str = ""
    names: CustomResourceDefinitionNames | None = None
    scope: str = ""
    versions: list[CustomResourceDefinitionVersion] | None = None
    conversion: dict[str, JSON] | None = None
    preserve_unknown_fields: bool | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"group", "names", "scope", "versions"})


class CustomResourceDefinitionCondition(Struct):
    type: str = ""
    status: str = ""
    last_transition_time: str | None = None
    reason: str | None = None
    message: str | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"type", "status", "last_transition_time"})


class CustomResourceDefinitionStatus(Struct):
    conditions: list[CustomResourceDefinitionCondition] | None = None
    accepted_names: CustomResourceDefinitionNames | None = None
    stored_versions: list[str] | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"conditions", "accepted_names", "stored_versions"})


class CustomResourceDefinition(
    Object, group="apiextensions.k8s.io", version="v1", plural="customresourcedefinitions", namespaced=False
):
    spec: CustomResourceDefinitionSpec = Field(default_factory=CustomResourceDefinitionSpec)
    status: CustomResourceDefinitionStatus = Field(default_factory=CustomResourceDefinitionStatus)
