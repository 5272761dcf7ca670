# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What JobSet's webhooks do, for the in-memory servers of unit tests and of simulations."""

from __future__ import annotations

from typing import Any

import msgspec

Document = dict[str, Any]
SCHEDULING = ("nodeSelector", "tolerations", "schedulingGates")
"""The fields of a pod's spec that may change while a JobSet is suspended."""
_MUTABLE = ("suspend", "coordinator", "ttlSecondsAfterFinished")


def set_defaults(spec: Document, *, webhook: bool = True) -> None:
    """Set the defaults of JobSet's CRD in a spec and, with ``webhook``, those of its mutating webhook."""
    if webhook:
        spec.setdefault("network", {}).setdefault("enableDNSHostnames", True)
        spec["network"].setdefault("publishNotReadyAddresses", True)
        spec.setdefault("startupPolicy", {"startupPolicyOrder": "AnyOrder"})
        spec.setdefault("successPolicy", {"operator": "All"})
    for job in spec.get("replicatedJobs") or ():
        job.setdefault("groupName", "default")
        job.setdefault("replicas", 1)
        if webhook:
            job["template"]["spec"].setdefault("completionMode", "Indexed")
            job["template"]["spec"]["template"]["spec"].setdefault("restartPolicy", "OnFailure")


def is_allowed(old: Document, new: Document) -> bool:
    """Return True if a change of a spec is permitted. Scheduling may change if the JobSet is or becomes suspended."""
    may_move = bool(old.get("suspend") or new.get("suspend"))
    return (may_move or _scheduling(new) == _scheduling(old)) and _fixed(new) == _fixed(old)


def pod_templates(spec: Document) -> list[Document]:
    """Return the pod templates of a spec."""
    return [job["template"]["spec"]["template"] for job in spec.get("replicatedJobs") or ()]


def _fixed(spec: Document) -> Document:
    copy: Document = msgspec.json.decode(msgspec.json.encode(spec))
    for field in _MUTABLE:
        copy.pop(field, None)
    for template in pod_templates(copy):
        template.pop("metadata", None)
        for field in SCHEDULING:
            template["spec"].pop(field, None)
    return copy


def _scheduling(spec: Document) -> list[list[Any]]:
    return [
        [each.get("metadata"), *(each["spec"].get(field) for field in SCHEDULING)]
        for each in pod_templates(spec)
    ]
