# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Health endpoints. They serve named checks, all together or one by one, in the text format of Kubernetes' own servers.

A check fails by raising :class:`NotHealthyError`. The message of this error is public, so it must not contain secrets.
Any other error is a bug: the HTTP server logs the error and answers with 500. A check that passes may return a remark
about a condition that an operator should know, e.g. a degraded kind. Remarks are always shown, and do not make the
endpoint fail.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import anyio
import msgspec

from . import log
from .machinery import raised
from .serving import Handler, HTTPRequest, HTTPResponse

Checker = Callable[[], Awaitable[str | None] | str | None]

_DEADLINE: Final = 5.0
_log = log.logger_from("controller-runtime.healthz")


class NotHealthyError(Exception):
    """A check failed; the message is the reason."""


def ping() -> None:
    """Pass always."""


class _CheckResult(msgspec.Struct, frozen=True):
    name: str
    remark: str = ""
    error: str = ""
    excluded: bool = False

    def __str__(self) -> str:
        if self.error:
            # Kubernetes' servers withhold the reason of a failure. Our reasons contain no secrets, and without them the
            # events of a pod would not show why a probe failed.
            return f"[-]{self.name} failed: {' '.join(self.error.split())}\n"
        status = f"[+]{self.name} {'excluded: ' if self.excluded else ''}ok"
        return f"{status}: {self.remark}\n" if self.remark else f"{status}\n"


class HealthHandler:
    """Serves all ``checks`` at the endpoint, and each one at a path below the endpoint. Supports ``?verbose`` and
    ``?exclude=name``.
    """

    def __init__(self, endpoint: str, checks: Mapping[str, Checker]) -> None:
        self._endpoint = "/" + endpoint.strip("/")
        self._checks = checks
        self._failed: dict[str, str] = {}
        self._log_limiter = log.LineLimiter()

    def routes(self) -> dict[str, Handler]:
        """Return the routes for an HTTP server."""
        return {self._endpoint: self, f"{self._endpoint}/": self}

    async def __call__(self, request: HTTPRequest) -> HTTPResponse:
        """Answer with 200 if no check fails, with 500 if a check fails, and with 404 if the check does not exist."""
        name = request.path.removeprefix(self._endpoint).strip("/")
        checks = self._checks or {"ping": ping}
        if not name:
            return await self._all(checks, request)
        if name not in checks:
            return HTTPResponse.text("404 page not found\n", status=404)
        outcome = await self._run(name, checks[name])
        if outcome.error:
            return HTTPResponse.text(f"internal server error: {outcome.error}\n", status=500)
        return HTTPResponse.text(f"ok: {outcome.remark}" if outcome.remark else "ok")

    async def _all(self, checks: Mapping[str, Checker], request: HTTPRequest) -> HTTPResponse:
        excluded = set(request.query.get("exclude", ()))
        outcomes = [
            _CheckResult(name, excluded=True) if name in excluded else await self._run(name, checks[name])
            for name in sorted(checks)
        ]
        failed = [outcome for outcome in outcomes if outcome.error]
        self._log_changes(outcomes)
        remarks = any(outcome.remark for outcome in outcomes)
        if not failed and not remarks and "verbose" not in request.query:
            return HTTPResponse.text("ok")
        text = "".join(map(str, outcomes))
        if unknown := sorted(excluded - checks.keys()):
            names = ",".join(f'"{name}"' for name in unknown)
            text += f"warn: some health checks cannot be excluded: no matches for {names}\n"
        endpoint = self._endpoint.strip("/")
        text += f"{endpoint} check {'failed' if failed else 'passed'}\n"
        return HTTPResponse.text(text, status=500 if failed else 200)

    def _log_changes(self, outcomes: list[_CheckResult]) -> None:
        """Log checks that fail now but passed in their last run, and checks that pass again."""
        failed = {outcome.name: outcome.error for outcome in outcomes if outcome.error}
        began = {name: error for name, error in failed.items() if name not in self._failed}
        ended = [
            outcome.name
            for outcome in outcomes
            if outcome.name in self._failed and not (outcome.error or outcome.excluded)
        ]
        for name in ended:
            del self._failed[name]
        self._failed |= failed
        endpoint = self._endpoint.strip("/")
        if began and (held_back := self._log_limiter.allow()) is not None:
            _log.info("Health check failed", endpoint=endpoint, failed=began, **held_back)
        if ended and (held_back := self._log_limiter.allow()) is not None:
            _log.info("Health check passes again", endpoint=endpoint, passed=ended, **held_back)

    async def _run(self, name: str, check: Checker) -> _CheckResult:
        try:
            with anyio.fail_after(_DEADLINE):
                result = check()
                remark = await result if inspect.isawaitable(result) else result
        except TimeoutError:
            return _CheckResult(name, error=f"no answer within {_DEADLINE:g} s")
        except NotHealthyError as error:
            return _CheckResult(name, error=raised.text(error))
        return _CheckResult(name, remark=remark or "")
