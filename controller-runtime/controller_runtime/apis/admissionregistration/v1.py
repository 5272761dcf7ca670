# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Webhook configurations."""

from typing import ClassVar

from controller_runtime.apis.meta.v1 import LabelSelector
from controller_runtime.machinery import Object, Struct


class Rule(Struct):
    api_groups: list[str] | None = None
    api_versions: list[str] | None = None
    resources: list[str] | None = None
    scope: str | None = None


class RuleWithOperations(Struct):
    operations: list[str] | None = None
    api_groups: list[str] | None = None
    api_versions: list[str] | None = None
    resources: list[str] | None = None
    scope: str | None = None


class ServiceReference(Struct):
    namespace: str = ""
    name: str = ""
    path: str | None = None
    port: int | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"namespace", "name"})


class WebhookClientConfig(Struct):
    url: str | None = None
    service: ServiceReference | None = None
    ca_bundle: str | None = None


class MatchCondition(Struct):
    name: str = ""
    expression: str = ""
    go_always: ClassVar[frozenset[str]] = frozenset({"name", "expression"})


class _Webhook(Struct):
    """The fields that both kinds of webhook have."""

    name: str = ""
    client_config: WebhookClientConfig | None = None
    rules: list[RuleWithOperations] | None = None
    failure_policy: str | None = None
    match_policy: str | None = None
    namespace_selector: LabelSelector | None = None
    object_selector: LabelSelector | None = None
    side_effects: str | None = None
    timeout_seconds: int | None = None
    admission_review_versions: list[str] | None = None
    match_conditions: list[MatchCondition] | None = None
    go_always: ClassVar[frozenset[str]] = frozenset(
        {"name", "client_config", "side_effects", "admission_review_versions"}
    )


class ValidatingWebhook(_Webhook):
    """admissionregistrationv1.ValidatingWebhook."""


class MutatingWebhook(_Webhook):
    reinvocation_policy: str | None = None


class ValidatingWebhookConfiguration(
    Object,
    group="admissionregistration.k8s.io",
    version="v1",
    plural="validatingwebhookconfigurations",
    namespaced=False,
):
    webhooks: list[ValidatingWebhook] | None = None


class MutatingWebhookConfiguration(
    Object,
    group="admissionregistration.k8s.io",
    version="v1",
    plural="mutatingwebhookconfigurations",
    namespaced=False,
):
    webhooks: list[MutatingWebhook] | None = None
