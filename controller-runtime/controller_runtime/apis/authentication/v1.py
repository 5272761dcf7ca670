# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Requests for tokens, and reviews of tokens."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from controller_runtime.machinery import Object, Struct


class UserInfo(Struct):
    username: str | None = None
    uid: str | None = None
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class BoundObjectReference(Struct):
    kind: str | None = None
    api_version: str | None = None
    name: str | None = None
    uid: str | None = None


class TokenRequestSpec(Struct):
    audiences: list[str] | None = None
    expiration_seconds: int | None = None
    bound_object_ref: BoundObjectReference | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"audiences", "expiration_seconds", "bound_object_ref"})


class TokenRequestStatus(Struct):
    """authenticationv1.TokenRequestStatus; the server parses the timestamp even in requests."""

    token: str | None = None
    expiration_timestamp: str | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"token", "expiration_timestamp"})


class TokenReviewSpec(Struct):
    token: str | None = None
    audiences: list[str] | None = None


class TokenReviewStatus(Struct):
    authenticated: bool | None = None
    user: UserInfo | None = None
    audiences: list[str] | None = None
    error: str | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"user"})


class TokenRequest(Object, group="authentication.k8s.io", version="v1", plural="tokenrequests"):
    spec: TokenRequestSpec = Field(default_factory=TokenRequestSpec)
    status: TokenRequestStatus = Field(default_factory=TokenRequestStatus)


class TokenReview(
    Object, group="authentication.k8s.io", version="v1", plural="tokenreviews", namespaced=False
):
    spec: TokenReviewSpec = Field(default_factory=TokenReviewSpec)
    status: TokenReviewStatus = Field(default_factory=TokenReviewStatus)
