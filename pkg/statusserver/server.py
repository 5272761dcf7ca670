# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The handler of status updates: authorize, decode, apply. Every answer is JSON. A refusal is a metav1.Status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, Protocol, Unpack

import anyio
import msgspec
from controller_runtime import cache, client, log, metrics, rest
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.machinery import JSON, Object
from controller_runtime.machinery.errors import (
    BadRequestError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    StatusError,
)
from controller_runtime.serving import HTTPRequest, HTTPResponse
from prometheus_client.metrics import Counter as CounterMetric

from pkg.apis.trainer.v1alpha1 import TrainJob

from . import payload
from .issuer import IssuerError
from .tokens import DeniedError
from .utils import train_job_of

FIELD_OWNER: Final = "trainer-status"
MAX_BODY: Final = 1 << 16
"""Maximum size of an update in bytes."""
DEADLINE: Final = 10.0
"""Seconds that an update may take. This includes waiting for the rate limit of our requests to the API server."""
AT_ONCE: Final = 2
"""Maximum number of updates of one TrainJob at the same time. A TrainJob that reports too often delays only itself."""

UPDATES: Final = CounterMetric(
    "kubeflow_trainer_status_updates_total",
    "Requests to the status server, by the code of the answer",
    ["code"],
    registry=metrics.REGISTRY,
)

_UNAVAILABLE: Final = (StatusError, rest.RestError, cache.CacheError, IssuerError)

_log = log.logger_from("status-server")


Authorize = Callable[[str, str, str], Awaitable[None]]
"""Returns if the client with an Authorization header may update the status of the TrainJob with a namespace and name.

Raises DeniedError if the client may not, and any other error if this could not be determined.
"""


class StatusWriter(Protocol):
    """Patches the status of objects, such as the ``status`` of a client."""

    async def patch(
        self, obj: Object, patch: client.Patch, /, **options: Unpack[client.PatchOptions]
    ) -> object:
        """Send ``patch`` to the status of the object named by ``obj``."""
        ...


class _RefusalError(Exception):
    """A request is refused. The error has the status, reason and message of the answer."""

    def __init__(self, status: HTTPStatus, reason: str, message: str, *, retry_after: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.headers = {"Retry-After": str(retry_after)} if retry_after else {}


class StatusHandler:
    """Answers requests to update the status of TrainJobs."""

    def __init__(self, statuses: StatusWriter, authorize: Authorize) -> None:
        self._statuses = statuses
        self._may_update = authorize
        self._in_progress: Counter[tuple[str, str]] = Counter()
        self._log_limiter = log.LineLimiter()
        self.denied = ""
        """Why the API server refused the last request to authorize a client; empty if the request was not refused."""

    async def __call__(self, request: HTTPRequest) -> HTTPResponse:
        """Return the answer to a request."""
        try:
            response = _json(HTTPStatus.OK, await self._serve(request))
        except _RefusalError as refusal:
            status = {
                "metadata": {},
                "status": "Failure",
                "message": str(refusal),
                "reason": refusal.reason,
                "code": int(refusal.status),
            }
            response = _json(refusal.status, status, refusal.headers)
        UPDATES.labels(str(response.status)).inc()
        return response

    async def _serve(self, request: HTTPRequest) -> dict[str, JSON]:
        if request.body_rejected:
            raise _RefusalError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "RequestEntityTooLarge", "Payload too large"
            )
        target = train_job_of(request.path)
        if target is None or request.method != "POST":
            raise _RefusalError(HTTPStatus.NOT_FOUND, "NotFound", "Not found")
        try:
            with anyio.fail_after(DEADLINE):
                await self._authorize(request, *target)
                return await self._update(request, *target)
        except TimeoutError:
            self._log_sparingly("Status update took too long", "/".join(target), seconds=DEADLINE)
            raise _RefusalError(
                HTTPStatus.GATEWAY_TIMEOUT, "Timeout", f"The update took more than {DEADLINE:g} seconds"
            ) from None

    async def _authorize(self, request: HTTPRequest, namespace: str, name: str) -> None:
        try:
            await self._may_update(request.headers.get("Authorization", ""), namespace, name)
        except DeniedError as error:
            reason = str(error)
            _log.debug("Status update denied", trainJob=f"{namespace}/{name}"[:256], reason=reason[:256])
            message = f"Forbidden: {reason}" if reason else "Forbidden"
            raise _RefusalError(HTTPStatus.FORBIDDEN, "Forbidden", message) from error
        except _UNAVAILABLE as error:
            if isinstance(error, ForbiddenError):
                self.denied = str(error)
            target = f"{namespace}/{name}"
            raise self._internal("Client of the status server cannot be authorized", error, target) from error
        self.denied = ""

    async def _update(self, request: HTTPRequest, namespace: str, name: str) -> dict[str, JSON]:
        try:
            update = payload.decode(request.body)
        except payload.PayloadError as error:
            raise _RefusalError(HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", "Invalid payload") from error
        if update.trainer_status is not None:
            turn = (namespace, name)
            if self._in_progress[turn] >= AT_ONCE:
                raise _RefusalError(
                    HTTPStatus.TOO_MANY_REQUESTS, "TooManyRequests", "Too many updates at once", retry_after=1
                )
            self._in_progress[turn] += 1
            try:
                await self._apply(namespace, name, update.trainer_status)
            finally:
                self._in_progress[turn] -= 1
                if not self._in_progress[turn]:
                    del self._in_progress[turn]
        return update.answer

    async def _apply(self, namespace: str, name: str, trainer_status: dict[str, JSON]) -> None:
        configuration = {
            "apiVersion": TrainJob.gvk.api_version,
            "kind": TrainJob.gvk.kind,
            "metadata": {"name": name, "namespace": namespace},
            "status": {"trainerStatus": trainer_status},
        }
        patch = client.raw_patch(client.APPLY, msgspec.json.encode(configuration))
        train_job = TrainJob(metadata=ObjectMeta(name=name, namespace=namespace))
        try:
            await self._statuses.patch(train_job, patch, field_owner=FIELD_OWNER, force=True)
        except (InvalidError, BadRequestError) as error:
            message = str(error) or "Validation failed"
            raise _RefusalError(HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", message) from error
        except NotFoundError as error:
            raise _RefusalError(HTTPStatus.NOT_FOUND, "NotFound", "Train job not found") from error
        except _UNAVAILABLE as error:
            raise self._internal("Failed to update TrainJob", error, f"{namespace}/{name}") from error

    def _internal(self, message: str, error: Exception, train_job: str) -> _RefusalError:
        self._log_sparingly(message, train_job, error=error)
        return _RefusalError(HTTPStatus.INTERNAL_SERVER_ERROR, "InternalError", "Internal error")

    def _log_sparingly(self, message: str, train_job: str, **fields: object) -> None:
        if (held_back := self._log_limiter.allow()) is not None:
            _log.error(message, **fields, trainJob=train_job[:256], **held_back)


def _json(status: HTTPStatus, body: dict[str, JSON], headers: dict[str, str] | None = None) -> HTTPResponse:
    return HTTPResponse(
        status=int(status),
        body=msgspec.json.encode(body) + b"\n",
        content_type="application/json",
        headers={"X-Content-Type-Options": "nosniff", **(headers or {})},
    )
