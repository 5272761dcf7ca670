# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from pkg import apply


@pytest.mark.parametrize(
    ("inside", "given", "want"),
    [
        pytest.param(
            "spec",
            {"hostNetwork": False, "schedulerName": "", "nodeSelector": {}, "tolerations": [], "priority": 0},
            {"priority": 0},
            id="zeros of plain fields and empty collections go, zeros of pointers stay",
        ),
        pytest.param(
            "spec",
            {"nodeSelector": {"a": ""}, "affinity": {}},
            {"nodeSelector": {"a": ""}, "affinity": {}},
            id="not their content, nor structs",
        ),
        pytest.param("template", {}, {"metadata": {}, "spec": {}}, id="a template has both its parts"),
        pytest.param(
            "",
            {"replicatedJobs": [{"name": "a", "template": {"metadata": {"labels": {"x": "y"}}}}]},
            {
                "replicatedJobs": [
                    {
                        "name": "a",
                        "template": {
                            "metadata": {"labels": {"x": "y"}},
                            "spec": {"template": {"metadata": {}, "spec": {}}},
                        },
                    }
                ]
            },
            id="a job without a spec has a template of pods",
        ),
        pytest.param(
            "volumeClaimTemplate",
            {"spec": {"resources": {"requests": {"storage": "1024Mi", "example.com/x": 3}}}},
            {"metadata": {}, "spec": {"resources": {"requests": {"storage": "1Gi", "example.com/x": "3"}}}},
            id="the amounts of a claim are canonical quantities",
        ),
        pytest.param("flexVolume", {"driver": "d", "options": {}}, {"driver": "d"}, id="empty options go"),
        pytest.param(
            "ephemeralContainers", {"targetContainerName": ""}, {"resources": {}}, id="an empty target goes"
        ),
        pytest.param("volumes", {"name": ""}, {"name": ""}, id="a required name stays"),
        pytest.param("imagePullSecrets", {"name": ""}, {}, id="a reference's empty name goes"),
        pytest.param("env", {"name": "A", "value": ""}, {"name": "A"}, id="an empty value goes"),
        pytest.param(
            "httpHeaders", {"name": "A", "value": ""}, {"name": "A", "value": ""}, id="where it may go"
        ),
        pytest.param(
            "spec", {"newField": 0, "other": ""}, {"newField": 0, "other": ""}, id="unknown fields pass"
        ),
        pytest.param(
            "spec",
            {
                "containers": [
                    {
                        "name": "a",
                        "env": [{"name": "R", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}],
                    }
                ]
            },
            {
                "containers": [
                    {
                        "name": "a",
                        "env": [
                            {
                                "name": "R",
                                "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "0"}},
                            }
                        ],
                        "resources": {},
                    }
                ]
            },
            id="structs that Go embeds are there",
        ),
    ],
)
def test_a_body_is_as_a_typed_client_sends_it(
    inside: str, given: dict[str, Any], want: dict[str, Any]
) -> None:
    assert apply.as_typed(given, inside=inside) == want
    assert given == want
