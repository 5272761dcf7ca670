# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The place in the code that writes a line, as zap names it: ``folder/file.py:line``."""

from __future__ import annotations

import logging
from typing import Final

from structlog.processors import CallsiteParameter, CallsiteParameterAdder

_NO_LOGGER: Final = logging.getLogger(__name__)
"""It is not used: a processor of structlog receives one."""
_place: Final = CallsiteParameterAdder(
    [CallsiteParameter.PATHNAME, CallsiteParameter.LINENO], additional_ignores=[f"{__package__}.", "logging"]
)


def caller() -> str:
    """Return the first place outside of logging itself on the stack of the caller."""
    found = _place(_NO_LOGGER, "", {})
    folder_and_file = "/".join(found["pathname"].rsplit("/", 2)[-2:])
    return f"{folder_and_file}:{found['lineno']}"
