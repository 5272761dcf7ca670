# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The environment variables of OpenTelemetry, with its own exporter and a collector on loopback."""

import gzip
import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from controller_runtime.tracing import MissingExtraError, from_environment


class Collector(http.server.BaseHTTPRequestHandler):
    received: list[ExportTraceServiceRequest]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        assert self.path == "/v1/traces"
        self.received.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ExportTraceServiceRequest]]:
    received: list[ExportTraceServiceRequest] = []
    handler = type("Handler", (Collector,), {"received": received})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        yield received
        server.shutdown()


@pytest.mark.real_time
async def test_spans_reach_the_collector_that_the_environment_names(
    collector: list[ExportTraceServiceRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    tracing = from_environment("operator", "1.2")
    assert tracing is not None
    with tracing._tracer.start_as_current_span("one"):
        pass
    await tracing.shutdown()
    (request,) = collector
    (resource,) = request.resource_spans
    attributes = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert attributes["service.name"] == "operator"
    assert attributes["service.version"] == "1.2"
    assert attributes["deployment.environment.name"] == "test"
    assert [span.name for scope in resource.scope_spans for span in scope.spans] == ["one"]


@pytest.mark.real_time
async def test_the_environment_names_the_service(
    collector: list[ExportTraceServiceRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_on")
    tracing = from_environment("operator")
    assert tracing is not None
    with tracing._tracer.start_as_current_span("one"):
        pass
    await tracing.shutdown()
    names = [
        each.value.string_value
        for each in collector[0].resource_spans[0].resource.attributes
        if each.key == "service.name"
    ]
    assert names == ["mine"]


@pytest.mark.parametrize("environ", [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}])
def test_the_environment_can_disable_tracing(environ: dict[str, str]) -> None:
    assert from_environment("operator", environ=environ) is None


def test_an_unknown_exporter_is_named() -> None:
    with pytest.raises(
        MissingExtraError, match="OTEL_TRACES_EXPORTER: the exporter 'jaeger' is not installed"
    ):
        from_environment("operator", environ={"OTEL_TRACES_EXPORTER": "otlp,jaeger"})


_WITHOUT = """
import sys
sys.modules["opentelemetry.sdk"] = None
import controller_runtime as ctrl
from controller_runtime import builder, manager, tracing
try:
    tracing.from_environment("operator")
except tracing.MissingExtraError as error:
    print(error)
"""


@pytest.mark.real_time
def test_a_missing_extra_is_named_when_tracing_is_requested() -> None:
    answer = subprocess.run([sys.executable, "-c", _WITHOUT], capture_output=True, text=True, check=True)
    assert answer.stdout == "tracing needs OpenTelemetry: install controller-runtime[otel]\n"
