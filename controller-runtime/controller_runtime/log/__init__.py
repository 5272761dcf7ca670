# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Structured logging through Python's ``logging``; the logger comes from the context.

The loggers are below ``controller_runtime``. :func:`configure` writes their lines in zap's format; an application that
configures ``logging`` itself does not call it. structlog is loaded when the log is set up, or when the first line is
written.
"""

from typing import TYPE_CHECKING

from controller_runtime import _ondemand

from .context import bound as bound
from .context import into_context as into_context
from .context import into_context_late as into_context_late
from .context import logger_from as logger_from
from .context import may_write as may_write
from .encode import CUT as CUT
from .encode import LineLimiter as LineLimiter
from .encode import cut as cut
from .encode import describe as describe
from .options import DEBUG as DEBUG
from .options import ERROR as ERROR
from .options import INFO as INFO
from .options import TRACE as TRACE
from .options import Encoder as Encoder
from .options import Options as Options
from .options import TimeEncoding as TimeEncoding
from .options import limit as limit
from .options import parse_encoder as parse_encoder
from .options import parse_level as parse_level
from .options import parse_stacktrace_level as parse_stacktrace_level
from .options import parse_time_encoding as parse_time_encoding

if TYPE_CHECKING:
    from .setup import Logger as Logger
    from .setup import captured as captured
    from .setup import configure as configure
    from .setup import merge_context as merge_context
    from .setup import set_verbosity as set_verbosity
    from .setup import verbosity as verbosity
else:
    __getattr__, __dir__ = _ondemand.names(
        __name__,
        {"setup": ("Logger", "captured", "configure", "merge_context", "set_verbosity", "verbosity")},
    )
