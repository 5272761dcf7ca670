# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""OpenTelemetry spans of reconciles and of their requests, in one trace for each object.

Only a program that enables tracing loads OpenTelemetry, which the extra ``otel`` installs; see ``Options.tracing``.
"""

from typing import TYPE_CHECKING

from controller_runtime import _ondemand

from .interface import Instrumentable as Instrumentable
from .interface import MissingExtraError as MissingExtraError
from .interface import Subject as Subject
from .interface import UIDs as UIDs

if TYPE_CHECKING:
    from .environment import from_environment as from_environment
    from .spans import Tracing as Tracing
    from .spans import UIDGenerator as UIDGenerator
    from .spans import trace_id as trace_id
else:
    __getattr__, __dir__ = _ondemand.names(
        __name__,
        {"environment": ("from_environment",), "spans": ("Tracing", "UIDGenerator", "trace_id")},
    )
