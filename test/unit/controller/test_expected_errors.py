# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Of an expected error only the text is logged: a traceback would show nothing but this program's own code."""

import io
import json

import pytest
from controller_runtime import log
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.cache import CacheSyncTimeoutError, UndecodableObjectError
from controller_runtime.machinery import NamespacedName
from controller_runtime.machinery.errors import InvalidError
from controller_runtime.machinery.patch import StrategicMergeError
from controller_runtime.reconcile import ReconcileTimeoutError, TerminalError

from pkg.controller.applier import OldJobSetError
from pkg.podgrouper.plugins import AccessorError, GroupingError, InvalidOwnerError
from pkg.podgrouper.plugins.defaults import DefaultsError
from pkg.runtime import UnsupportedRuntimeError
from pkg.runtime.core import RuntimeNotFoundError
from pkg.runtime.framework import PluginError, UnavailableError
from pkg.util.trainjob import ChildConflictError, PredecessorError


def terminal(cause: Exception) -> TerminalError:
    error = TerminalError("no retry")
    error.__cause__ = cause
    return error


EXPECTED = [
    terminal(InvalidError("it is invalid")),
    CacheSyncTimeoutError("pods were not listed in time"),
    UndecodableObjectError(Pod.gvk, NamespacedName("team", "a"), "spec: a list"),
    ReconcileTimeoutError("reconcile was cancelled after 60 s"),
    StrategicMergeError("lists of lists are not supported"),
    OldJobSetError("too old"),
    UnsupportedRuntimeError("unknown"),
    RuntimeNotFoundError("getting runtime snapshot: invalid runtime snapshot"),
    PluginError("no target job"),
    UnavailableError("GangSchedulingUnavailable", "not served"),
    ChildConflictError("another controller's"),
    PredecessorError("an earlier one's", Pod()),
    GroupingError("no queue"),
    AccessorError(".spec", "a list"),
    InvalidOwnerError("no kind"),
    DefaultsError("not YAML"),
]


def line(error: Exception) -> dict[str, object]:
    """Raise and log the error, and return the line of the log."""
    stream = io.StringIO()
    log.configure(stream=stream)
    try:
        raise error  # noqa: TRY301
    except Exception as caught:
        log.logger_from("controller").error("Reconciler error", error=caught)
    found: dict[str, object] = json.loads(stream.getvalue())
    return found


@pytest.mark.parametrize("error", EXPECTED, ids=lambda error: type(error).__name__)
def test_an_expected_error_is_its_text(error: Exception) -> None:
    written = line(error)
    assert written["error"] == str(error)
    assert "stacktrace" not in written


@pytest.mark.parametrize("error", [terminal(ValueError("a bug")), TerminalError("a choice")])
def test_a_terminal_error_with_another_cause_has_its_traceback(error: Exception) -> None:
    assert "stacktrace" in line(error)
