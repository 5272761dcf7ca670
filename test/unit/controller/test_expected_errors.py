# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Of an expected error only the text is logged: a traceback would show nothing but this program's own code."""

import io
import json

import pytest
from controller_runtime import log, rest
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.cache import CacheDegradedError, CacheSyncTimeoutError, UndecodableObjectError
from controller_runtime.machinery import NamespacedName, errors
from controller_runtime.machinery.patch import StrategicMergeError
from controller_runtime.reconcile import ReconcileTimeoutError, TerminalError

from pkg.controller.applier import OldJobSetError
from pkg.podgrouper.plugins import AccessorError, GroupingError, InvalidOwnerError
from pkg.podgrouper.plugins.defaults import DefaultsError
from pkg.runtime import UnsupportedRuntimeError
from pkg.runtime.core import RuntimeNotFoundError
from pkg.runtime.framework import PluginError, UnavailableError
from pkg.util.trainjob import ChildConflictError, PredecessorError


@pytest.fixture
def stream() -> io.StringIO:
    written = io.StringIO()
    log.configure(stream=written)
    return written


def raised(error: Exception) -> Exception:
    """Raise and catch the error, so that it has a traceback."""
    try:
        raise error  # noqa: TRY301
    except Exception as caught:
        return caught


def terminal(cause: Exception) -> TerminalError:
    error = TerminalError("no retry")
    error.__cause__ = cause
    return error


def line(stream: io.StringIO, error: Exception) -> dict[str, object]:
    log.logger_from("controller").error("Reconciler error", error=raised(error))
    found: dict[str, object] = json.loads(stream.getvalue().splitlines()[-1])
    return found


EXPECTED = [
    errors.ConflictError("the object has been modified"),
    errors.NotFoundError("it is not found"),
    errors.AlreadyExistsError("it exists"),
    errors.InvalidError("it is invalid"),
    errors.ForbiddenError('namespace "team" is being terminated', details={"causes": [{"reason": "NamespaceTerminating"}]}),
    errors.TooManyRequestsError("please try again later"),
    errors.StatusError("Timeout: request did not complete within requested timeout", code=504, reason="Timeout"),
    errors.StatusError("the server is shutting down", code=503, reason="ServiceUnavailable"),
    rest.TransportTimeoutError("no answer within 30 s", host="a"),
    rest.TransportError("connection refused", host="a"),
    rest.AnswerError("the response is not JSON", host="a"),
    rest.NoKindMatchError(Pod.gvk),
    CacheDegradedError(Pod.gvk, "not served"),
    CacheSyncTimeoutError("pods were not listed in time"),
    UndecodableObjectError(Pod.gvk, NamespacedName("team", "a"), "spec: a list"),
    ReconcileTimeoutError("reconcile was cancelled after 60 s"),
    OldJobSetError("too old"),
    UnsupportedRuntimeError("unknown"),
    RuntimeNotFoundError("getting runtime snapshot: invalid runtime snapshot"),
    StrategicMergeError("lists of lists are not supported"),
    PluginError("no target job"),
    UnavailableError("GangSchedulingUnavailable", "not served"),
    ChildConflictError("another controller's"),
    PredecessorError("an earlier one's"),
    GroupingError("no queue"),
    AccessorError(".spec", "a list"),
    InvalidOwnerError("no kind"),
    DefaultsError("not YAML"),
]  # fmt: skip


@pytest.mark.parametrize("error", EXPECTED, ids=lambda error: f"{type(error).__name__} {error}"[:60])
def test_an_expected_error_is_its_text(stream: io.StringIO, error: Exception) -> None:
    written = line(stream, error)
    assert written["error"] == str(error)
    assert "stacktrace" not in written


def test_a_group_and_a_terminal_error_follow_their_parts(stream: io.StringIO) -> None:
    both = ExceptionGroup("several steps failed", EXPECTED[:3])
    assert "stacktrace" not in line(stream, both)
    assert "stacktrace" not in line(stream, terminal(errors.InvalidError("it is invalid")))


@pytest.mark.parametrize(
    "error", [ValueError("a bug"), terminal(ValueError("a bug")), TerminalError("a choice")]
)
def test_an_unexpected_error_has_its_traceback(stream: io.StringIO, error: Exception) -> None:
    assert "stacktrace" in line(stream, error)


def test_a_bug_in_a_group_has_its_traceback(stream: io.StringIO) -> None:
    assert "stacktrace" in line(stream, ExceptionGroup("both", [EXPECTED[0], ValueError("a bug")]))
