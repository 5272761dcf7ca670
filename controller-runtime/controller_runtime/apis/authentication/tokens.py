# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Requests for tokens, and reviews of tokens, for :mod:`.v1`: only programs that use them load this module."""

from typing import ClassVar

from pydantic import Field

from controller_runtime.apis.authentication.v1 import UserInfo
from controller_runtime.machinery import Object, Struct


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
    """authenticationv1.TokenRequestStatus.

    The server parses the timestamp in requests, too: it must not be an empty string.
    """

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
