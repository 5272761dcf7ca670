# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The manager as a process with ``--tracing``, a real API server, and a collector of OTLP over HTTP on loopback."""

import gzip
import http.server
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from controller_runtime.client import LiveClient
from controller_runtime.envtest import eventually
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from testkit.builders import written_train_job
from testkit.clusters import job_set_at

pytestmark = pytest.mark.integration


class Receiver(http.server.BaseHTTPRequestHandler):
    spans: list[Span]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                self.spans.extend(scope.spans)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Span]]:
    received: list[Span] = []
    handler = type("Handler", (Receiver,), {"spans": received})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
        yield received
        server.shutdown()


async def test_two_lives_of_the_manager_continue_the_trace_of_a_trainjob(
    start_manager: Any, spans: list[Span], torch_runtime: str, live_client: LiveClient, namespace: str
) -> None:
    job = written_train_job(namespace, torch_runtime, kind=None)
    first = start_manager("--tracing")
    stored = await live_client.create(job)
    await job_set_at(live_client, job.key)
    assert first.terminate() == 0
    trace = bytes.fromhex((stored.metadata.uid or "").replace("-", ""))
    of_job = [span for span in spans if span.trace_id == trace]
    by_id = {span.span_id: span for span in of_job}
    (applied,) = [span for span in of_job if span.name == "PATCH jobsets.jobset.x-k8s.io"]
    reconcile = by_id[applied.parent_span_id]
    root = by_id[reconcile.parent_span_id]
    assert (reconcile.name, root.name, root.parent_span_id) == ("reconcile", "trainjob_controller", b"")
    triggers = {each.attributes[0].value.string_value for span in of_job for each in span.events}
    about = f"TrainJob.trainer.kubeflow.org {namespace}/job"
    assert triggers & {f"{about} created", f"{about} listed"}

    spans.clear()
    second = start_manager("--tracing")

    async def reconciled() -> bool:
        return any(span.trace_id == trace and span.name == "reconcile" for span in spans)

    await eventually(reconciled, timeout=60, reason="the second life continues the trace")
    assert second.terminate() == 0
