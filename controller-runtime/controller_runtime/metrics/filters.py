# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Access to metrics only for clients whose token the API server accepts, and that may read the path.

The manager's own account must be allowed to create ``tokenreviews`` (authentication.k8s.io) and
``subjectaccessreviews`` (authorization.k8s.io). A scraper must be allowed to ``get`` the nonResourceURL ``/metrics``.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Hashable, Mapping
from http import HTTPStatus
from typing import Final, Protocol, TypeVar

import anyio

from controller_runtime import log
from controller_runtime.apis.authentication.v1 import TokenReview, TokenReviewSpec, UserInfo
from controller_runtime.apis.authorization.v1 import (
    NonResourceAttributes,
    SubjectAccessReview,
    SubjectAccessReviewSpec,
)
from controller_runtime.machinery import Object
from controller_runtime.machinery.lru import LRU
from controller_runtime.serving import Handler, HTTPRequest, HTTPResponse

from .server import Filter

# +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
# +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

T = TypeVar("T", bound=Object)

KNOWN_TTL: Final = 60.0
"""Seconds for which the result of a token review is cached, also for an invalid token."""
ALLOWED_TTL: Final = 60.0
"""Seconds for which a permission is cached. Go's controller-runtime caches it for five minutes. With a shorter time, a
client that loses its permission is locked out sooner. This costs one request a minute."""
DENIED_TTL: Final = 30.0
"""Seconds for which a denial is cached."""
_DEADLINE: Final = 10.0
_AT_ONCE: Final = 4
"""Maximum number of concurrent reviews."""
_REMEMBERED: Final = 1024
"""Maximum number of answers of each kind that are kept, so that invented tokens cannot fill the memory."""

_log = log.logger_from("controller-runtime.metrics")


class ReviewError(Exception):
    """The API server could not be reached, or refused the review."""


class Reviewer(Protocol):
    """Creates reviews on the API server."""

    async def create(self, review: T, /) -> T:
        """Post ``review`` and return it with its status.

        Raises:
            ReviewError: the review failed.
        """


FilterProvider = Callable[[Reviewer], Filter]
"""Makes a filter that creates reviews in the manager's name."""


def with_authentication_and_authorization(reviewer: Reviewer) -> Filter:
    """Return the filter that admits clients whom the API server authenticates and authorizes; see the module."""
    return _AccessFilter(reviewer)


class _AccessFilter:
    """Answers unknown clients with 401 and unauthorized clients with 403. If a review fails, the answer is 500."""

    def __init__(self, reviewer: Reviewer) -> None:
        self._reviewer = reviewer
        self._asking = anyio.Semaphore(_AT_ONCE)
        self._log_limiter = log.LineLimiter()
        self._salt = secrets.token_bytes(32)
        # The answers of the API server, and when they expire.
        self._users: LRU[bytes, tuple[float, UserInfo | None]] = LRU(_REMEMBERED)
        self._decisions: LRU[Hashable, tuple[float, bool]] = LRU(_REMEMBERED)

    def __call__(self, handler: Handler) -> Handler:
        """Return ``handler`` behind authentication and authorization."""

        async def guarded(request: HTTPRequest) -> HTTPResponse:
            refusal = await self._refuse(request)
            return refusal if refusal is not None else await handler(request)

        return guarded

    async def _refuse(self, request: HTTPRequest) -> HTTPResponse | None:
        token = _bearer_token(request.headers)
        if not token:
            return _plain("Unauthorized", HTTPStatus.UNAUTHORIZED)
        try:
            user = await self._authenticate(token)
        except (ReviewError, TimeoutError) as error:
            self._complain("Authentication failed", error)
            return _plain("Authentication failed", HTTPStatus.INTERNAL_SERVER_ERROR)
        if user is None:
            return _plain("Unauthorized", HTTPStatus.UNAUTHORIZED)
        name = user.username or ""
        try:
            allowed = await self._authorize(user, request.method.lower(), request.path)
        except (ReviewError, TimeoutError) as error:
            self._complain("Authorization failed", error, user=name)
            return _plain(f"Authorization for user {name} failed", HTTPStatus.INTERNAL_SERVER_ERROR)
        if not allowed:
            _log.debug("Authorization denied", user=name, path=request.path)
            return _plain(f"Authorization denied for user {name}", HTTPStatus.FORBIDDEN)
        return None

    async def _authenticate(self, token: str) -> UserInfo | None:
        # Keep only a hash: a memory dump must not reveal the token.
        key = hashlib.blake2b(token.encode(), key=self._salt).digest()
        known = self._users.get(key)
        if known is not None and known[0] > anyio.current_time():
            return known[1]
        review = await self._ask(TokenReview(spec=TokenReviewSpec(token=token)))
        status = review.status
        user = status.user if status.authenticated else None
        if status.error and user is None:
            _log.debug("Token is not accepted", reason=status.error)
        self._users[key] = (anyio.current_time() + KNOWN_TTL, user)
        return user

    async def _authorize(self, user: UserInfo, verb: str, path: str) -> bool:
        extra = {key: tuple(values) for key, values in (user.extra or {}).items()}
        who = (user.username, user.uid, tuple(user.groups or ()), tuple(sorted(extra.items())))
        key = (who, verb, path)
        known = self._decisions.get(key)
        if known is not None and known[0] > anyio.current_time():
            return known[1]
        spec = SubjectAccessReviewSpec(
            user=user.username,
            uid=user.uid,
            groups=user.groups,
            extra=user.extra,
            non_resource_attributes=NonResourceAttributes(path=path, verb=verb),
        )
        review = await self._ask(SubjectAccessReview(spec=spec))
        allowed = bool(review.status.allowed) and not review.status.denied
        self._decisions[key] = (anyio.current_time() + (ALLOWED_TTL if allowed else DENIED_TTL), allowed)
        return allowed

    def _complain(self, message: str, error: Exception, **fields: str) -> None:
        if (held_back := self._log_limiter.allow()) is not None:
            _log.error(message, error=error, **fields, **held_back)

    async def _ask(self, review: T) -> T:
        """Return the API server's answer. Only a few reviews run at once, so that invalid tokens do not delay leases
        and events.
        """
        with anyio.fail_after(_DEADLINE):
            async with self._asking:
                return await self._reviewer.create(review)


def _bearer_token(headers: Mapping[str, str]) -> str:
    scheme, _, token = headers.get("Authorization", "").strip().partition(" ")
    # A token is ASCII. Other texts could not be sent to the API server.
    return token.strip() if scheme.lower() == "bearer" and token.isascii() else ""


def _plain(text: str, status: HTTPStatus) -> HTTPResponse:
    return HTTPResponse.text(f"{text}\n", status=status)
