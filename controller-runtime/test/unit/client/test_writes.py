# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The log lines about writes."""

import io
import json

import pytest

from controller_runtime import log
from controller_runtime.client.live import log_write
from controller_runtime.machinery import Resource
from controller_runtime.rest import request as requests
from controller_runtime.rest.request import APPLY


@pytest.fixture
def lines() -> io.StringIO:
    stream = io.StringIO()
    log.configure(log.Options(verbosity=log.DEBUG), stream=stream)
    return stream


def test_a_write_is_one_line_with_its_verb_and_a_read_is_none(lines: io.StringIO) -> None:
    resource = Resource("batch", "v1", "jobs", True)
    log_write(requests.get(resource, "team", "c"), 200)
    sent = requests.patch(resource, "team", "c", b"", content_type=APPLY, subresource="status")
    log_write(sent, 201)
    log_write(requests.update(Resource("", "v1", "nodes", False), "", "n", b"", dry_run=True), 200)

    applied, updated = map(json.loads, lines.getvalue().splitlines())
    assert applied["msg"] == "Wrote"
    assert [applied[key] for key in ("verb", "resource", "object", "subresource", "status")] == [
        "apply",
        "jobs.batch",
        "team/c",
        "status",
        201,
    ]
    assert [updated[key] for key in ("verb", "resource", "object", "dryRun")] == [
        "update",
        "nodes",
        "n",
        True,
    ]
