# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Generate webhook configurations from ``+kubebuilder:webhook`` markers. The fields are those of controller-gen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from controller_runtime.machinery import yaml

from . import markers

if TYPE_CHECKING:
    from controller_runtime.machinery import JSON

T = TypeVar("T")

_REQUIRED: Final = ("path", "mutating", "failurePolicy", "groups", "resources", "verbs", "versions", "name")
_OPTIONAL: Final = (
    "sideEffects",
    "admissionReviewVersions",
    "matchPolicy",
    "timeoutSeconds",
    "reinvocationPolicy",
)
_POLICIES: Final = {"fail": "Fail", "ignore": "Ignore"}
_BOOLEANS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Service:
    """The Service in front of the webhook server, and the prefix of the configurations' names."""

    namespace: str
    name: str
    prefix: str


def collect(paths: Iterable[Path]) -> list[markers.Fields]:
    """Return the webhook markers in Python files and folders.

    Raises:
        MarkerError: a marker lacks a required field, or has an unknown field.
        FileNotFoundError: a path does not exist.
    """
    return [
        fields
        for path in markers.sources(*paths)
        for fields in markers.fields_of(path.read_text(encoding="utf-8"), "webhook", _REQUIRED, _OPTIONAL)
    ]


def configurations(given: Iterable[markers.Fields], service: Service) -> list[dict[str, JSON]]:
    """Return a mutating and a validating webhook configuration, or only one if the other would have no webhooks.

    Raises:
        MarkerError: a field has a value that is not valid in Kubernetes.
    """
    hooks: dict[bool, list[dict[str, JSON]]] = {True: [], False: []}
    for fields in given:
        hooks[_choice(fields, "mutating", _BOOLEANS)].append(_webhook(fields, service))
    return [
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"{'Mutating' if mutating else 'Validating'}WebhookConfiguration",
            "metadata": {"name": f"{service.prefix}-{'mutating' if mutating else 'validating'}"},
            "webhooks": sorted(webhooks, key=lambda hook: str(hook["name"])),
        }
        for mutating, webhooks in hooks.items()
        if webhooks
    ]


def manifests(given: Iterable[markers.Fields], service: Service) -> str:
    """Return :func:`configurations` as YAML documents."""
    return "---\n".join(yaml.dump(configuration) for configuration in configurations(given, service))


def _webhook(fields: markers.Fields, service: Service) -> dict[str, JSON]:
    hook: dict[str, JSON] = {
        "name": markers.one(fields, "name"),
        "admissionReviewVersions": fields.get("admissionReviewVersions", ["v1"]),
        "clientConfig": {
            "service": {
                "namespace": service.namespace,
                "name": service.name,
                "path": markers.one(fields, "path"),
            }
        },
        "failurePolicy": _choice(fields, "failurePolicy", _POLICIES),
        "sideEffects": markers.one(fields, "sideEffects", "None"),
        "rules": [
            {
                "apiGroups": fields["groups"],
                "apiVersions": fields["versions"],
                "operations": [verb.upper() for verb in fields["verbs"]],
                "resources": fields["resources"],
            }
        ],
    }
    for name in ("matchPolicy", "reinvocationPolicy"):
        if name in fields:
            hook[name] = markers.one(fields, name)
    if "timeoutSeconds" in fields:
        hook["timeoutSeconds"] = _seconds(markers.one(fields, "timeoutSeconds"))
    return hook


def _choice(fields: markers.Fields, name: str, choices: dict[str, T]) -> T:
    value = markers.one(fields, name)
    if value.lower() not in choices:
        raise markers.MarkerError(f"{name}={value} in a webhook marker: must be {' or '.join(choices)}")
    return choices[value.lower()]


def _seconds(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 30:
        raise markers.MarkerError(f"timeoutSeconds={text} in a webhook marker: must be between 1 and 30")
    return int(text)
