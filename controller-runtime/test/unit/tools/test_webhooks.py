# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Webhook configurations from markers."""

from pathlib import Path

import pytest

from controller_runtime.tools import webhooks
from controller_runtime.tools.markers import MarkerError

MARKER = (
    "# +kubebuilder:webhook:path=/{path},mutating={mutating},failurePolicy=fail,groups=example.com,"
    "resources=websites,verbs=create;update,versions=v1,name={path}.example.com"
)
SERVICE = webhooks.Service("system", "webhook", "websites")


def test_each_marker_is_one_webhook_of_the_configuration_for_its_kind(tmp_path: Path) -> None:
    source = tmp_path / "a.py"
    lines = [
        MARKER.format(path="b", mutating="false") + ",sideEffects=NoneOnDryRun,timeoutSeconds=5",
        MARKER.format(path="a", mutating="false"),
        MARKER.format(path="c", mutating="true") + ",reinvocationPolicy=IfNeeded",
    ]
    source.write_text("\n".join(lines))
    mutating, validating = webhooks.configurations(webhooks.collect([source]), SERVICE)
    assert (mutating["kind"], mutating["metadata"]["name"]) == (
        "MutatingWebhookConfiguration",
        "websites-mutating",
    )
    assert validating["kind"] == "ValidatingWebhookConfiguration"
    assert [hook["name"] for hook in validating["webhooks"]] == ["a.example.com", "b.example.com"]
    assert mutating["webhooks"] == [
        {
            "name": "c.example.com",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": "system", "name": "webhook", "path": "/c"}},
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "rules": [
                {
                    "apiGroups": ["example.com"],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": ["websites"],
                }
            ],
            "reinvocationPolicy": "IfNeeded",
        }
    ]
    assert (validating["webhooks"][1]["sideEffects"], validating["webhooks"][1]["timeoutSeconds"]) == (
        "NoneOnDryRun",
        5,
    )


def test_a_configuration_without_webhooks_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(MARKER.format(path="a", mutating="true"))
    assert len(webhooks.configurations(webhooks.collect([tmp_path]), SERVICE)) == 1
    assert webhooks.configurations([], SERVICE) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param(
            ("mutating=true", "mutating=yes"), "mutating=yes.* must be true or false", id="mutating"
        ),
        pytest.param(("=fail", "=Retry"), "failurePolicy=Retry.* must be fail or ignore", id="policy"),
        pytest.param(("versions=v1", "versions=v1,timeoutSeconds=90"), "between 1 and 30", id="timeout"),
        pytest.param(("path=/a,", ""), "has no field path", id="no path"),
    ],
)
def test_a_value_that_kubernetes_does_not_know_is_refused(
    tmp_path: Path, change: tuple[str, str], problem: str
) -> None:
    (tmp_path / "a.py").write_text(MARKER.format(path="a", mutating="true").replace(*change))
    with pytest.raises(MarkerError, match=problem):
        webhooks.configurations(webhooks.collect([tmp_path]), SERVICE)
