# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Errors that an API server returns.

StatusError                 the server returned a metav1.Status other than Success
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

For requests that did not reach a server, see ``controller_runtime.rest.TransportError``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from . import raised
from .printable import cut

if TYPE_CHECKING:
    from pydantic_core import ValidationError

    from .base import JSON
    from .field import AggregateError
    from .names import GVK, Resource

MAX_RETRY_AFTER: Final = 60.0
"""Maximum delay in seconds that a server can request before the next attempt."""


class StatusError(raised.ExpectedError):
    """An error returned by an API server; ``str()`` is the server's message."""

    def __init__(
        self,
        message: str,
        *,
        code: int = 500,
        reason: str = "",
        details: dict[str, JSON] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason
        self.details: dict[str, JSON] = details or {}
        self.retry_after = retry_after
        """Seconds to wait as requested by the server, or None."""

    @property
    def causes(self) -> list[dict[str, JSON]]:
        """The items of ``details.causes``; each has a field, a reason and a message."""
        causes = self.details.get("causes")
        return [cause for cause in causes if isinstance(cause, dict)] if isinstance(causes, list) else []

    def has_cause(self, reason: str) -> bool:
        """Return True if one of the causes has this reason."""
        return any(cause.get("reason") == reason for cause in self.causes)


class BadRequestError(StatusError):
    """400: the server cannot process the request."""


class UnauthorizedError(StatusError):
    """401: the server does not accept the credentials."""


class ForbiddenError(StatusError):
    """403: RBAC or admission denied the request."""


class NotFoundError(StatusError):
    """404: the object or the kind does not exist."""

    namespace: str | None = None
    """The namespace in which the client looked for the object, or None if it is not known."""

    @property
    def names_object(self) -> bool:
        """True if the server knows the kind but has no object of this name.

        False while a server does not serve the kind, for instance because the CRD is being replaced: the object may
        still exist.
        """
        return bool(self.details.get("name"))

    def is_about(self, gvk: GVK, resource: Resource | None, name: str, namespace: str | None = None) -> bool:
        """Return True if the object of this kind and name does not exist, in ``namespace`` if both are known."""
        if self.namespace and namespace and self.namespace != namespace:
            return False
        details = self.details
        kinds = (gvk.kind, resource.plural) if resource is not None else (details.get("kind"),)
        group = details.get("group") or ""
        return (
            bool(name) and details.get("name") == name and group == gvk.group and details.get("kind") in kinds
        )


class MethodNotAllowedError(StatusError):
    """405: the kind does not support this verb."""


class ConflictError(StatusError):
    """409: the object changed since it was read, or another field manager owns the field."""


class AlreadyExistsError(StatusError):
    """409 with reason AlreadyExists."""


class ExpiredError(StatusError):
    """410: the resourceVersion or continue token is too old."""


class InvalidError(StatusError):
    """422: the object failed validation; see :attr:`StatusError.causes`."""


class TooManyRequestsError(StatusError):
    """429: retry after ``retry_after`` seconds."""


class ServerError(StatusError):
    """5xx."""


class ServerTimeoutError(ServerError):
    """The server timed out; the request may have taken effect."""


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


def from_status(status: dict[str, JSON], *, http_code: int, retry_after: float | None = None) -> StatusError:
    """Return the exception for a metav1.Status.

    If ``status`` has neither a code nor a reason, the class depends only on ``http_code``.
    """
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


def new_invalid(gvk: GVK, name: str, problems: AggregateError) -> InvalidError:
    """Return the error that an API server would return for an object with these invalid fields."""
    return InvalidError(
        f'{gvk.group_kind} "{name}" is invalid: {problems}',
        code=422,
        reason="Invalid",
        details={"name": name, "group": gvk.group, "kind": gvk.kind, "causes": problems.causes},
    )


def one_line(error: object) -> str:
    """Return an error's message on one line, or the name of its type if the message is empty."""
    return " ".join(raised.text(error).split()) or raised.name(error)


def first_problem(error: ValidationError) -> tuple[str, str]:
    """Return the path to the first field that pydantic refused, with dots, and the problem, which quotes no value.

    A long path is cut.
    """
    first = error.errors(include_url=False, include_input=False)[0]
    return cut(".".join(map(str, first["loc"]))), first["msg"]


def bounded_wait(seconds: float) -> float:
    """Return ``seconds``, limited to the range from 0 to :data:`MAX_RETRY_AFTER`."""
    return float(max(0, min(seconds, MAX_RETRY_AFTER)))


def to_status(error: StatusError) -> dict[str, JSON]:
    """Return ``error`` as a metav1.Status."""
    status: dict[str, JSON] = {
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
