# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""OpenTelemetry spans of a program: enabled by its flag, configured by the ``OTEL_*`` environment variables."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import controller_runtime as ctrl
from controller_runtime import log

from pkg import config


@asynccontextmanager
async def traced(options: ctrl.Options, program: str, version: str) -> AsyncIterator[ctrl.Options]:
    """Yield ``options`` with tracing, which is configured by the environment.

    When the block ends, the last spans are sent.

    Raises:
        ConfigurationError: OpenTelemetry, or an exporter that the environment names, is not installed.
    """
    from controller_runtime.tracing import MissingExtraError

    try:
        from controller_runtime.tracing import from_environment  # loads OpenTelemetry

        tracing = from_environment(program, version)
    except MissingExtraError as error:
        raise config.ConfigurationError(f"--tracing: {error}") from error
    if tracing is None:
        log.logger_from("setup").warning(
            "--tracing has no effect: the OTEL_* environment variables disable it"
        )
        yield options
        return
    try:
        yield dataclasses.replace(options, tracing=tracing)
    finally:
        await tracing.shutdown()
