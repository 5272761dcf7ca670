# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What an API server answers when it refuses.

StatusError                 the server answered with a metav1.Status that is no success
├── BadRequestError         400
├── UnauthorizedError       401
├── ForbiddenError          403
├── NotFoundError           404
├── MethodNotAllowedError   405
├── ConflictError           409 Conflict
├── AlreadyExistsError      409 AlreadyExists
├── ExpiredError            410, reason Expired or Gone: relist
├── InvalidError            422
├── TooManyRequestsError    429
└── ServerError             5xx
    └── ServerTimeoutError  504, and 500 with reason ServerTimeout

A server that was never reached is not here: see ``controller_runtime.rest.TransportError``.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

MAX_RETRY_AFTER: Final = 60.0
"""Seconds that a server can have its clients wait before the next attempt, at most."""


class StatusError(Exception):
    """An API server's refusal; ``str()`` is the server's message."""

    needs_no_stack: ClassVar[bool] = True
    """The reason is outside this program: a log shows the text alone."""

    def __init__(
        self,
        message: str,
        *,
        code: int = 500,
        reason: str = "",
        details: dict[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason
        self.details: dict[str, Any] = details or {}
        self.retry_after = retry_after
        """Seconds the server asked to wait, or None."""

    @property
    def causes(self) -> list[dict[str, Any]]:
        """``details.causes``: each a field, a reason and a message."""
        causes = self.details.get("causes")
        return [each for each in causes if isinstance(each, dict)] if isinstance(causes, list) else []


class BadRequestError(StatusError):
    """400: the request makes no sense to the server."""


class UnauthorizedError(StatusError):
    """401: the credentials are not accepted."""


class ForbiddenError(StatusError):
    """403: RBAC or admission denies it."""


class NotFoundError(StatusError):
    """404: no such object, or no such kind."""


class MethodNotAllowedError(StatusError):
    """405: the kind does not offer this verb."""


class ConflictError(StatusError):
    """409: the object changed since it was read, or another manager owns the field."""


class AlreadyExistsError(StatusError):
    """409 with reason AlreadyExists."""


class ExpiredError(StatusError):
    """410: the resourceVersion or continue token is too old."""


class InvalidError(StatusError):
    """422: the object fails validation; see :attr:`StatusError.causes`."""


class TooManyRequestsError(StatusError):
    """429: wait ``retry_after``."""


class ServerError(StatusError):
    """5xx."""


class ServerTimeoutError(ServerError):
    """The server gave up waiting; the request may have taken effect."""


_BY_REASON: Final[dict[str, type[StatusError]]] = {
    "AlreadyExists": AlreadyExistsError,
    "Expired": ExpiredError,
    "Gone": ExpiredError,
    "ServerTimeout": ServerTimeoutError,
    "Timeout": ServerTimeoutError,
}
_BY_CODE: Final[dict[int, type[StatusError]]] = {
    400: BadRequestError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    405: MethodNotAllowedError,
    409: ConflictError,
    410: ExpiredError,
    422: InvalidError,
    429: TooManyRequestsError,
    504: ServerTimeoutError,
}


def from_status(status: dict[str, Any], *, http_code: int, retry_after: float | None = None) -> StatusError:
    """Return the exception for a metav1.Status, or for a body that is none (then by ``http_code`` alone)."""
    code = status.get("code")
    code = code if isinstance(code, int) and 400 <= code < 600 else http_code
    reason = str(status.get("reason") or "")
    details = status.get("details")
    details = details if isinstance(details, dict) else {}
    cls = _BY_REASON.get(reason) or _BY_CODE.get(code) or (ServerError if code >= 500 else StatusError)
    if retry_after is None and isinstance(seconds := details.get("retryAfterSeconds"), int) and seconds:
        retry_after = bounded_wait(seconds)
    message = str(status.get("message") or "") or f"the server answered {code} without a message"
    return cls(message, code=code, reason=reason, details=details, retry_after=retry_after)


def one_line(error: object) -> str:
    """Return an error's text on one line, or the name of its type when it has no text."""
    return " ".join(str(error).split()) or type(error).__name__


def bounded_wait(seconds: float) -> float:
    """Return ``seconds`` between none and :data:`MAX_RETRY_AFTER`."""
    return float(max(0, min(seconds, MAX_RETRY_AFTER)))


def to_status(error: StatusError) -> dict[str, Any]:
    """Return ``error`` as the metav1.Status it came from."""
    status: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Status",
        "metadata": {},
        "status": "Failure",
        "message": error.message,
        "code": error.code,
    }
    if error.reason:
        status["reason"] = error.reason
    if error.details:
        status["details"] = error.details
    return status
