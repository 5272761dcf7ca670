# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Requests to the API server to review a user's permissions."""

from pydantic import Field

from controller_runtime.apis.meta.v1 import LabelSelectorRequirement
from controller_runtime.machinery import Object, Struct


class FieldSelectorRequirement(Struct):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class FieldSelectorAttributes(Struct):
    raw_selector: str | None = None
    requirements: list[FieldSelectorRequirement] | None = None


class LabelSelectorAttributes(Struct):
    raw_selector: str | None = None
    requirements: list[LabelSelectorRequirement] | None = None


class ResourceAttributes(Struct):
    namespace: str | None = None
    verb: str | None = None
    group: str | None = None
    version: str | None = None
    resource: str | None = None
    subresource: str | None = None
    name: str | None = None
    field_selector: FieldSelectorAttributes | None = None
    label_selector: LabelSelectorAttributes | None = None


class NonResourceAttributes(Struct):
    path: str | None = None
    verb: str | None = None


class SubjectAccessReviewSpec(Struct):
    resource_attributes: ResourceAttributes | None = None
    non_resource_attributes: NonResourceAttributes | None = None
    user: str | None = None
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None
    uid: str | None = None


class SubjectAccessReviewStatus(Struct):
    allowed: bool | None = None
    denied: bool | None = None
    reason: str | None = None
    evaluation_error: str | None = None


class SubjectAccessReview(
    Object, group="authorization.k8s.io", version="v1", plural="subjectaccessreviews", namespaced=False
):
    spec: SubjectAccessReviewSpec = Field(default_factory=SubjectAccessReviewSpec)
    status: SubjectAccessReviewStatus = Field(default_factory=SubjectAccessReviewStatus)
