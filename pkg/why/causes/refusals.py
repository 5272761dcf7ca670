# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Finds the cause of a refusal in the error text of the API server."""

from __future__ import annotations

import re
from typing import Any, Final

from controller_runtime.machinery import quantity

from pkg.why.finding import Finding, found
from pkg.why.liveobject import MOST_MATCHED, LiveObject

# fmt: off
_TEXTS: Final = tuple((re.compile(pattern, re.DOTALL), rule) for rule, pattern in (
    ("namespace-terminating", r"namespace (?P<name>\S+) because it is being terminated"),
    ("quota-exceeded",
     r"exceeded quota: (?P<name>[^,]+), requested: (?P<requested>[^:]*), used: (?P<used>[^:]*), limited: (?P<max>.*)"),
    ("quota-exceeded/unspecified", r"failed quota: (?P<name>[^:]+): must specify (?P<words>.*)"),
    ("limit-range",
     r"(?P<words>(?:maximum|minimum) \S+ usage per \S+ is [^,]+?(?:, but [^,\]]*|\. +No \w+ is specified))"),
    ("limit-range", r"(?P<words>\S+ max limit to request ratio per (?:Container|Pod) is [^,]+, but [^\n\]]*)"),
    ("pod-security", r'violates PodSecurity "(?P<name>[^"]+)": (?P<words>.*)'),
    ("pod-security/constraint", r"unable to validate against any security context constraint: (?P<words>.*)"),
    ("service-account-missing",
     r'(?:error looking up service account [^:]*: )?serviceaccounts? "(?P<name>[^"]+)" not found'),
    ("priority-class-missing", r"no PriorityClass with name (?P<name>\S+) was found"),
    ("runtime-class-missing",
     r'RuntimeClass "?(?P<name>[^"\s]+)"? not found|runtimeclass[\w.]* "(?P<other>[^"]+)" not found'),
    ("webhook-unreachable", r'[Ff]ailed calling webhook,? "(?P<name>[^"]+)": (?P<words>.*)'),
    ("webhook-denied",
     r'admission (?P<what>webhook) "(?P<name>[^"]+)" denied the request(?: without explanation|: (?P<words>.*))?'),
    ("webhook-denied",
     r"ValidatingAdmission(?P<what>Policy) '(?P<name>[^']+)' with binding '[^']*' denied request: (?P<words>.*)"),
    ("forbidden", r'User "(?P<name>[^"]+)" cannot (?P<verb>\S+) resource "(?P<words>[^"]+)"'),
    ("runtime-missing", r'(?:cluster)?trainingruntimes?(?:\.trainer\.kubeflow\.org)? "?(?P<name>[^"\s]+)"? not found'),
    ("jobset-missing", r'no matches for kind "?JobSet|jobsets?\.jobset\.x-k8s\.io.* (?:not installed|not served)'),
    ("kind-missing", r'no matches for kind "(?P<kind>[^"]+)" in version "(?P<version>[^"]+)"'),
    ("kind-missing/unversioned", r"(?P<kind>[A-Z]\w+\.[\w.-]+): .*could not find the requested resource"),
    ("name-conflict", r"(?P<name>\S+ \S+): (?P<words>exists and has no controller|controlled by [^\n,]*)"),
    ("object-invalid", r'(?P<name>\S+ "[^"]+") is invalid: (?P<words>.*)'),
))
"""The rules by what the text contains."""
# fmt: on
PROJECTS: Final = {
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


def refused(message: str, obj: LiveObject, *evidence: str) -> Finding:
    """Return the cause that the error text about ``obj`` or its children shows, else ``creation-failed``."""
    shown = " ".join(message.split())[:MOST_MATCHED]
    for pattern, rule in _TEXTS:
        if not (match := pattern.search(shown)):
            continue
        named: dict[str, Any] = {
            name: (value or "").rstrip(" .") for name, value in match.groupdict().items()
        }
        match rule:
            case "quota-exceeded" if _is_none(named["requested"], named["max"]):
                rule = "quota-exceeded/none"
            case "quota-exceeded" if never := _beyond(named["requested"], named["max"]):
                rule, named["never"] = "quota-exceeded/never", never
            case "kind-missing" | "kind-missing/unversioned":
                group = named.get("version", "").partition("/")[0] or named["kind"].partition(".")[2]
                project = PROJECTS.get(group, f"the program that provides {named['kind']}")
                named["project"] = project.format(group=group)
            case "runtime-class-missing":
                named["name"] = named["name"] or named["other"]
            case "runtime-missing":
                named["runtime"] = f"runtime {named['name']}"
            case "webhook-denied":
                named["what"] = named["what"].lower()
            case "object-invalid":
                named["words"] = f"{named['name']} is invalid: {named['words']}"
        return found(rule, obj, *evidence, namespace=obj.namespace, **named)
    return found("creation-failed", obj, *evidence, words=shown.rstrip("."))


def _is_none(requested: str, limited: str) -> bool:
    """Return True if a quota permits no pods or objects at all, so that smaller ones do not help."""
    limits = dict(each.split("=", 1) for each in limited.split(",") if "=" in each)
    names = [each.partition("=")[0] for each in requested.split(",")]
    return all((name == "pods" or name.startswith("count/")) and limits.get(name) == "0" for name in names)


def _beyond(requested: str, limited: str) -> str:
    """Return the resources of which one object requests more than a quota permits in total, as text."""
    limits = dict(each.split("=", 1) for each in limited.split(",") if "=" in each)
    beyond = []
    for each in requested.split(","):
        name, _, amount = each.partition("=")
        try:
            if name in limits and quantity.cmp(amount, limits[name]) > 0:
                beyond.append(f"{name} {amount} of {limits[name]}")
        except ValueError:
            continue
    return ", ".join(beyond)
