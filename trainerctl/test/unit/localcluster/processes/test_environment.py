# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Variables of containers that run as local processes."""

import base64
import os
from typing import Any

import pytest
from controller_runtime.apis.core.v1 import ConfigMap, Pod, Secret
from controller_runtime.fake import FakeClient

from trainerctl.localcluster.processes.environment import ConfigError, Environment, References, expand


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("$(A)-$(B)", "1-2"),
        ("$(NOPE) $A ${A}", "$(NOPE) $A ${A}"),
        ("$$(A)", "$(A)"),
        ("$(x $(A))", "$(x $(A))"),
        ("$($(A))", "$($(A))"),
        ("$$$(A)", "$1"),
        ("$$$$(A)", "$$(A)"),
        ("$(A", "$(A"),
        ("$()", "$()"),
        ("$(A)$", "1$"),
        ("$((A))", "$((A))"),
    ],
)
def test_expand_follows_the_rules_of_kubernetes(text: str, want: str) -> None:
    assert expand(text, {"A": "1", "B": "2"}) == want


def _environment(container: dict[str, Any], *objects: Any) -> tuple[Environment, Any]:
    pod = Pod.from_dict(
        {
            "metadata": {
                "name": "web",
                "namespace": "team",
                "uid": "u",
                "annotations": {"batch.kubernetes.io/job-completion-index": "2", "quote": 'a"b'},
                "labels": {"app": "x"},
            },
            "spec": {"nodeName": "node-1", "containers": [{"name": "main", **container}]},
        }
    )
    references = References(FakeClient(*objects), "team")
    return Environment(pod, "127.64.0.1", references), (pod.spec.containers or [])[0]


def _of(kind: type[Any], name: str, **data: Any) -> Any:
    return kind.from_dict({"metadata": {"name": name, "namespace": "team"}, **data})


async def test_variables_refer_to_earlier_ones_and_replace_those_of_env_from() -> None:
    config = _of(ConfigMap, "cm", data={"A": "cm", "B": "cm"})
    secret = _of(Secret, "s", data={"B": base64.b64encode(b"secret").decode()})
    environment, container = _environment(
        {
            "envFrom": [
                {"configMapRef": {"name": "cm"}},
                {"prefix": "P_", "secretRef": {"name": "s"}},
                {"configMapRef": {"name": "none", "optional": True}},
            ],
            "env": [
                {"name": "C", "value": "$(A) $(P_B) $(D)"},
                {"name": "A", "value": "own"},
                {"name": "D", "value": "$(A)"},
            ],
        },
        config,
        secret,
    )
    assert await environment.of(container) == {
        "A": "own",
        "B": "cm",
        "P_B": "secret",
        "C": "cm secret $(D)",
        "D": "own",
    }


@pytest.mark.parametrize(
    ("source", "want"),
    [
        (
            {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}},
            "2",
        ),
        ({"fieldRef": {"fieldPath": "metadata.labels"}}, 'app="x"'),
        ({"fieldRef": {"fieldPath": "metadata.labels['none']"}}, ""),
        ({"fieldRef": {"fieldPath": "status.podIP"}}, "127.64.0.1"),
        ({"fieldRef": {"fieldPath": "spec.nodeName"}}, "node-1"),
        ({"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}, "100"),
        ({"resourceFieldRef": {"resource": "requests.cpu"}}, "1"),
        ({"resourceFieldRef": {"resource": "requests.cpu", "divisor": "1m"}}, "250"),
        ({"resourceFieldRef": {"resource": "limits.cpu"}}, str(os.cpu_count())),
        ({"resourceFieldRef": {"resource": "requests.memory"}}, "0"),
        ({"configMapKeyRef": {"name": "cm", "key": "k"}}, "v"),
        ({"configMapKeyRef": {"name": "cm", "key": "none", "optional": True}}, None),
        ({"secretKeyRef": {"name": "none", "key": "k", "optional": True}}, None),
    ],
)
async def test_a_variable_takes_its_value_from_a_source(source: dict[str, Any], want: str | None) -> None:
    resources = {"limits": {"memory": "100Mi"}, "requests": {"cpu": "250m"}}
    environment, container = _environment(
        {"env": [{"name": "X", "valueFrom": source}], "resources": resources},
        _of(ConfigMap, "cm", data={"k": "v"}),
    )
    assert (await environment.of(container)).get("X") == want


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"secretKeyRef": {"name": "none", "key": "k"}}, 'secret "none" not found'),
        ({"configMapKeyRef": {"name": "cm", "key": "none"}}, "couldn't find key none in ConfigMap team/cm"),
        ({"fieldRef": {"fieldPath": "spec.none"}}, "unsupported fieldPath: spec.none"),
        (
            {"resourceFieldRef": {"resource": "limits.cpu", "containerName": "none"}},
            "container none not found",
        ),
    ],
)
async def test_a_source_that_does_not_exist_is_named(source: dict[str, Any], message: str) -> None:
    environment, container = _environment(
        {"env": [{"name": "X", "valueFrom": source}]}, _of(ConfigMap, "cm", data={"k": "v"})
    )
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        await environment.of(container)


async def test_a_secret_that_is_created_later_is_found() -> None:
    client = FakeClient()
    references = References(client, "team")
    with pytest.raises(ConfigError):
        await references.secret("later", optional=False)
    await client.create(_of(Secret, "later", data={"k": base64.b64encode(b"v").decode()}))
    assert await references.secret("later", optional=False) == {"k": b"v"}
