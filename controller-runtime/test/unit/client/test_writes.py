# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The log lines about writes."""

import io
import json

import pytest

from controller_runtime import log, rest
from controller_runtime.client.live import log_write, target_of
from controller_runtime.rest.request import APPLY


@pytest.fixture
def lines() -> io.StringIO:
    stream = io.StringIO()
    log.configure(log.Options(verbosity=log.DEBUG), stream=stream)
    return stream


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/api/v1/namespaces/team/pods/a/status", ("pods", "team/a", "status")),
        ("/api/v1/namespaces/team/events", ("events", "team/", "")),
        ("/api/v1/namespaces/team", ("namespaces", "team", "")),
        ("/api/v1/namespaces/team/finalize", ("namespaces", "team", "finalize")),
        ("/api/v1/nodes/n", ("nodes", "n", "")),
        (
            "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team/jobsets/j",
            ("jobsets.jobset.x-k8s.io", "team/j", ""),
        ),
        ("/apis/a.io/v1/things/x%20y", ("things.a.io", "x y", "")),
        ("/", ("", "", "")),
    ],
)
def test_a_path_names_its_object(path: str, target: tuple[str, str, str]) -> None:
    assert target_of(path) == target


def test_a_write_is_one_line_with_its_verb_and_a_read_is_none(lines: io.StringIO) -> None:
    path = "/api/v1/namespaces/team/configmaps/c"
    log_write(rest.Request("GET", path), 200)
    log_write(rest.Request("PATCH", path, headers={"Content-Type": APPLY}), 201)
    log_write(rest.Request("DELETE", path, (("dryRun", "All"),)), 200)

    applied, deleted = map(json.loads, lines.getvalue().splitlines())
    assert applied["msg"] == "Wrote"
    assert (applied["verb"], applied["resource"], applied["object"], applied["status"]) == (
        "apply",
        "configmaps",
        "team/c",
        201,
    )
    assert (deleted["verb"], deleted["dryRun"]) == ("delete", True)
