# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Admission reviews: the API server's requests to webhooks, and their responses."""

from typing import ClassVar

from controller_runtime.apis.authentication.v1 import UserInfo
from controller_runtime.apis.meta.v1 import GroupVersionKind, GroupVersionResource, Status
from controller_runtime.machinery import JSON, Object, Struct


class AdmissionRequest(Struct):
    uid: str = ""
    kind: GroupVersionKind | None = None
    resource: GroupVersionResource | None = None
    sub_resource: str | None = None
    request_kind: GroupVersionKind | None = None
    request_resource: GroupVersionResource | None = None
    request_sub_resource: str | None = None
    name: str | None = None
    namespace: str | None = None
    operation: str = ""
    user_info: UserInfo | None = None
    object: JSON | None = None
    old_object: JSON | None = None
    dry_run: bool | None = None
    options: JSON | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"uid", "kind", "resource", "operation", "user_info"})


class AdmissionResponse(Struct):
    uid: str = ""
    allowed: bool = False
    status: Status | None = None
    patch: str | None = None
    patch_type: str | None = None
    audit_annotations: dict[str, str] | None = None
    warnings: list[str] | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"uid", "allowed"})


class AdmissionReview(Object, group="admission.k8s.io", version="v1", plural="", namespaced=False):
    request: AdmissionRequest | None = None
    response: AdmissionResponse | None = None
