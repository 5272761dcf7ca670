# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Set up tracing from the ``OTEL_*`` environment variables of OpenTelemetry.

This module reads only ``OTEL_TRACES_EXPORTER``, which lists the exporters, and ``OTEL_SDK_DISABLED``, which disables
tracing. OpenTelemetry's SDK and its exporters read all other variables, such as those for sampling and endpoints.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Final

from .interface import MissingExtraError

try:
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
except ImportError as error:
    raise MissingExtraError("tracing needs OpenTelemetry: install controller-runtime[otel]") from error

from .spans import Tracing, UIDGenerator

_GROUP: Final = "opentelemetry_traces_exporter"
_ALIASES: Final = {"otlp": "otlp_proto_http"}
_NONE: Final = "none"


def from_environment(
    service: str, version: str = "", environ: Mapping[str, str] = os.environ
) -> Tracing | None:
    """Return tracing as the environment sets it up, or None if the environment disables it.

    ``OTEL_SDK_DISABLED=true`` and ``OTEL_TRACES_EXPORTER=none`` disable it.

    Without ``OTEL_TRACES_EXPORTER``, the exporter is ``otlp``. ``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES``
    can set a service name; otherwise it is ``service``.

    Raises:
        MissingExtraError: an exporter in ``OTEL_TRACES_EXPORTER`` is not installed.
    """
    names = [
        name.strip() for name in (environ.get("OTEL_TRACES_EXPORTER") or "otlp").split(",") if name.strip()
    ]
    disabled = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if disabled or not names or names == [_NONE]:
        return None
    exporters = [_exporter(name) for name in names if name != _NONE]
    own = Resource.get_empty().merge(Resource({"service.name": service, "service.version": version}))
    resource = Resource.create().merge(own).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource, id_generator=UIDGenerator(), shutdown_on_exit=False)
    for exporter in exporters:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return Tracing(provider)


def _exporter(name: str) -> SpanExporter:
    exporters = entry_points(group=_GROUP, name=_ALIASES.get(name, name))
    if not exporters:
        raise MissingExtraError(f"OTEL_TRACES_EXPORTER: the exporter {name!r} is not installed")
    exporter: SpanExporter = next(iter(exporters)).load()()
    return exporter
