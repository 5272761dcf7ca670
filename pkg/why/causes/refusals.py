# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Finds the cause of a refusal in the error text of the API server."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from controller_runtime.machinery import quantity

from pkg.why.liveobject import MOST_MATCHED


class Refusal(NamedTuple):
    """Why the API server refused a request."""

    cause: str
    summary: str
    advice: str


def _rule(pattern: str, cause: str, summary: str, advice: str) -> tuple[re.Pattern[str], Refusal]:
    return re.compile(pattern, re.DOTALL), Refusal(cause, summary, advice)


_RULES: Final = (
    _rule(
        r"namespace (?P<a>\S+) because it is being terminated",
        "namespace-terminating",
        "the namespace {a} is being deleted",
        "Create the TrainJob in another namespace.",
    ),
    _rule(
        r"exceeded quota: (?P<a>[^,]+), requested: (?P<b>[^:]*), used: (?P<c>[^:]*), limited: (?P<d>.*)",
        "quota-exceeded",
        "the ResourceQuota {a} is exceeded: requested {b}, used {c}, limit {d}",
        "Wait until other workloads of the namespace end, or delete some; or lower numNodes or resourcesPerNode of "
        "spec.trainer; or ask the administrator to raise the ResourceQuota {a}.",
    ),
    _rule(
        r"failed quota: (?P<a>[^:]+): must specify (?P<b>.*)",
        "quota-exceeded",
        "the ResourceQuota {a} requires every pod to specify {b}",
        "Set {b} in spec.trainer.resourcesPerNode, or add a LimitRange with defaults.",
    ),
    _rule(
        r"(?P<a>(?:maximum|minimum) \S+ usage per (?:Container|Pod|PersistentVolumeClaim) is [^,]+?"
        r"(?:, but [^,\]]*|\. +No \w+ is specified))",
        "limit-range",
        "a LimitRange refuses the pods: {a}",
        "Change spec.trainer.resourcesPerNode, or the LimitRange of the namespace.",
    ),
    _rule(
        r"(?P<a>\S+ max limit to request ratio per (?:Container|Pod) is [^,]+, but [^\n\]]*)",
        "limit-range",
        "a LimitRange refuses the pods: {a}",
        "Change spec.trainer.resourcesPerNode, or the LimitRange of the namespace.",
    ),
    _rule(
        r'violates PodSecurity "(?P<a>[^"]+)": (?P<b>.*)',
        "pod-security",
        "the Pod Security level {a} of the namespace refuses the pods: {b}",
        "Correct the security contexts in the runtime's template, or lower the namespace's pod-security label.",
    ),
    _rule(
        r"unable to validate against any security context constraint: (?P<b>.*)",
        "pod-security",
        "no security context constraint of OpenShift admits the pods: {b}",
        "Correct the security contexts in the runtime's template, or let their service account use another constraint.",
    ),
    _rule(
        r'(?:error looking up service account [^:]*: )?serviceaccounts? "(?P<a>[^"]+)" not found',
        "service-account-missing",
        "the service account {a} does not exist",
        "Create the service account {a}, or correct serviceAccountName.",
    ),
    _rule(
        r"no PriorityClass with name (?P<a>\S+) was found",
        "priority-class-missing",
        "the priority class {a} does not exist",
        "Create the PriorityClass {a}, or correct priorityClassName in the runtime.",
    ),
    _rule(
        r'RuntimeClass "?(?P<a>[^"\s]+)"? not found|runtimeclass[\w.]* "(?P<b>[^"]+)" not found',
        "runtime-class-missing",
        "the RuntimeClass {a}{b} does not exist",
        "Create the RuntimeClass {a}{b}, or correct runtimeClassName in the runtime.",
    ),
    _rule(
        r'[Ff]ailed calling webhook,? "(?P<a>[^"]+)": (?P<b>.*)',
        "webhook-unreachable",
        "the admission webhook {a} does not answer: {b}",
        "Start the program that serves the webhook, or delete its webhook configuration.",
    ),
    _rule(
        r'admission webhook "(?P<a>[^"]+)" denied the request(?: without explanation|: (?P<b>.*))?',
        "webhook-denied",
        "the admission webhook {a} refuses the object: {b}",
        "Change the refused setting, or ask the owner of the webhook {a}.",
    ),
    _rule(
        r"ValidatingAdmissionPolicy '(?P<a>[^']+)' with binding '[^']*' denied request: (?P<b>.*)",
        "webhook-denied",
        "the admission policy {a} refuses the object: {b}",
        "Change the refused setting, or ask the owner of the policy {a}.",
    ),
    _rule(
        r'User "(?P<a>[^"]+)" cannot (?P<b>\S+) resource "(?P<c>[^"]+)"',
        "forbidden",
        "{a} may not {b} {c}",
        "Grant the permission; the roles that the manager needs are in config/rbac.",
    ),
    _rule(
        r'(?:cluster)?trainingruntimes?(?:\.trainer\.kubeflow\.org)? "?(?P<a>[^"\s]+)"? not found',
        "runtime-missing",
        "the runtime {a} does not exist",
        "Create the runtime, or correct spec.runtimeRef in a new TrainJob.",
    ),
    _rule(
        r'no matches for kind "?JobSet|jobsets?\.jobset\.x-k8s\.io.* (?:not installed|not served)',
        "jobset-missing",
        "JobSet is not installed",
        "Install JobSet.",
    ),
    _rule(
        r'no matches for kind "(?P<a>[^"]+)" in version "(?P<b>[^"]+)"',
        "kind-missing",
        "the kind {a} ({b}) is not installed",
        "Install {project}, or use a runtime that does not need {a}.",
    ),
    _rule(
        r"(?P<a>[A-Z]\w+\.[\w.-]+): .*could not find the requested resource",
        "kind-missing",
        "the kind {a} is not installed",
        "Install {project}, or use a runtime that does not need {a}.",
    ),
    _rule(
        r"(?P<a>\S+ \S+): (?P<b>exists and has no controller|controlled by [^\n,]*)",
        "name-conflict",
        "the name of {a} is used by another object: {b}",
        "Delete that object, or create the TrainJob with another name.",
    ),
    _rule(
        r'(?P<a>\S+ "[^"]+") is invalid: (?P<b>.*)',
        "object-invalid",
        "{a} is invalid: {b}",
        "Correct the field in the TrainJob or its runtime; trainerctl explain shows where each value comes from.",
    ),
)


_PROJECTS: Final = {
    "jobset.x-k8s.io": "JobSet",
    "kubeflow.org": "the training operator of Kubeflow v1",
    "kueue.x-k8s.io": "Kueue",
    "leaderworkerset.x-k8s.io": "LeaderWorkerSet",
    "ray.io": "KubeRay",
    "resource.k8s.io": "a release of Kubernetes that serves {group}",
    "scheduling.k8s.io": "a release of Kubernetes with the gate GenericWorkload, and enable {group} in its API server",
    "scheduling.run.ai": "KAI-Scheduler",
    "scheduling.volcano.sh": "Volcano",
    "scheduling.x-k8s.io": "the coscheduling of scheduler-plugins",
    "trainer.kubeflow.org": "the CRDs of Trainer (config/crd)",
}
"""The project that provides the kinds of an API group."""


def _project(kind: str, api_version: str) -> str:
    """Return who provides a kind. ``kind`` contains the group if there is no ``api_version``."""
    group = api_version.partition("/")[0] or kind.partition(".")[2]
    return _PROJECTS.get(group, f"the program that provides {kind}").format(group=group)


def _beyond(requested: str, limited: str) -> str:
    """Return the resources of which one object requests more than a quota permits in total, as text."""
    limits = dict(each.split("=", 1) for each in limited.split(",") if "=" in each)
    found = []
    for each in requested.split(","):
        name, _, amount = each.partition("=")
        try:
            if name in limits and quantity.cmp(amount, limits[name]) > 0:
                found.append(f"{name} {amount} of {limits[name]}")
        except ValueError:
            continue
    return ", ".join(found)


def classify(message: str) -> Refusal:
    """Return the cause that the error text shows, or ``creation-failed`` if we do not recognize the text."""
    shown = " ".join(message.split())[:MOST_MATCHED]
    for pattern, (cause, summary, advice) in _RULES:
        if match := pattern.search(shown):
            named = {name: (value or "").rstrip(" .") for name, value in match.groupdict().items()}
            if (never := _beyond(named.get("b", ""), named.get("d", ""))) and cause == "quota-exceeded":
                summary = f"one pod requests more than the ResourceQuota {{a}} permits: {never}"
                advice = (
                    "Lower spec.trainer.resourcesPerNode, or ask the administrator to raise the ResourceQuota {a}; "
                    "waiting does not help."
                )
            named["project"] = _project(named.get("a", ""), named.get("b", ""))
            return Refusal(cause, summary.format_map(named).rstrip(" :"), advice.format_map(named))
    return Refusal(
        "creation-failed",
        f"an object cannot be created: {shown.rstrip('.')}",
        "Correct the setting that the message names; the controller tries again by itself.",
    )
