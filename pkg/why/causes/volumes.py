# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Volumes that cannot be provisioned, attached or mounted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from pkg.why import kinds
from pkg.why.causes import references
from pkg.why.finding import Finding, found
from pkg.why.liveobject import MOST_MATCHED, LiveObject, maps, text
from pkg.why.snapshot import CONTAINER_STEPS, PATIENCE, Reference, Snapshot, event_time

_FAILED: Final = ("FailedMount", "FailedAttachVolume", "FailedMapVolume")
_KEY: Final = re.compile(r"references non-existent (?:secret|config) key: ?(?P<key>\S+)")
_CLASS: Final = re.compile(r'storageclass[\w.]* "(?P<name>[^"]+)" not found')
_VOLUME: Final = re.compile(r'volume "[^"]+"')
_RACE: Final = re.compile(r"failed to sync (?:secret|configmap) cache|not registered")
"""A kubelet reports these messages if it has not yet read the Secrets and ConfigMaps of a new pod."""
_RACES: Final = 3
_PROVISIONING: Final = ("ExternalProvisioning", "Provisioning")
_PROVISIONED_WITHIN: Final = timedelta(seconds=60)
_LATE: Final = ("WaitForFirstConsumer", "WaitForPodScheduled")


def find(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield findings on volumes that keep pods from starting."""
    for pod in snapshot.pods:
        if pod.text("status", "phase") not in ("", "Pending"):
            continue
        for name in _claims(pod):
            yield from _claim(snapshot, pod, name)
        if pod.text("spec", "nodeName"):
            found = [_mount(snapshot, pod, event) for event in _failures(snapshot, pod)]
            yield from sorted(found, key=lambda each: each.rank)[:1]


def _failures(snapshot: Snapshot, pod: LiveObject) -> Iterator[LiveObject]:
    """Yield the failure events of volumes, without failures that were overcome later."""
    attached = snapshot.events(pod, "SuccessfulAttachVolume")
    for event in snapshot.unresolved(pod, _FAILED, CONTAINER_STEPS):
        name, time = _VOLUME.search(event.text("message")), event_time(event) or snapshot.now
        if event.text("reason") == "FailedAttachVolume" and any(
            (event_time(each) or time) > time and name is not None and name[0] in each.text("message")
            for each in attached
        ):
            continue
        if (
            _RACE.search(event.text("message"))
            and event.number("count") <= _RACES
            and snapshot.now - time < PATIENCE
        ):
            continue
        yield event


def storage_classes(snapshot: Snapshot) -> list[Reference]:
    """Return references to the storage classes of the claims that are not bound."""
    return [
        _class_of(each) for pod in snapshot.pods for each in _pending(snapshot, pod) if _class_of(each).name
    ]


def _class_of(claim: LiveObject) -> Reference:
    return Reference("StorageClass.storage.k8s.io", "", claim.text("spec", "storageClassName"))


def pending(snapshot: Snapshot, pod: LiveObject) -> list[str]:
    """Return the names of a pod's claims that are not bound."""
    return [each.name for each in _pending(snapshot, pod)]


def is_provisioned(snapshot: Snapshot, pod: LiveObject) -> bool:
    """Return True if the pod has unbound claims, and all of them began to be provisioned recently, without warnings."""
    claims = _pending(snapshot, pod)
    return bool(claims) and all(_is_provisioned(snapshot, each) for each in claims)


def _pending(snapshot: Snapshot, pod: LiveObject) -> list[LiveObject]:
    claims = [each for each in snapshot.all(kinds.CLAIM) if each.name in _claims(pod)]
    return [each for each in claims if each.text("status", "phase") == "Pending"]


def _is_provisioned(snapshot: Snapshot, claim: LiveObject) -> bool:
    events = snapshot.events(claim)
    began = [each.created for each in events if each.text("reason") in _PROVISIONING]
    first = min(filter(None, began), default=None)  # a claim may wait long for the first pod
    return (
        first is not None
        and snapshot.now - first <= _PROVISIONED_WITHIN
        and not any(each.text("type") == "Warning" for each in events)
    )


def _claims(pod: LiveObject) -> list[str]:
    named = [text(each, "persistentVolumeClaim", "claimName") for each in maps(pod.data, "spec", "volumes")]
    return [name for name in named if name]


def _claim(snapshot: Snapshot, pod: LiveObject, name: str) -> Iterator[Finding]:
    claim = next((each for each in snapshot.all(kinds.CLAIM) if each.name == name), None)
    phase = claim.text("status", "phase") if claim is not None else "Bound"
    if claim is None or phase == "Bound":
        return
    events = snapshot.events(claim)
    evidence = (f"phase of {claim} is {phase}", *(snapshot.quote(each) for each in events[:2]))
    about = [claim, pod]
    words = " ".join(each.text("message")[:MOST_MATCHED] for each in events if each.text("type") == "Warning")
    if phase == "Lost":
        yield found("claim-lost", about, *evidence, claim=claim)
    elif match := _CLASS.search(words):
        yield found("storage-class-missing", about, *evidence, claim=claim, name=match["name"])
    elif (missing := _class_of(claim)) in snapshot.absent:
        line = f"{missing} was not found"
        yield found("storage-class-missing", about, *evidence, line, claim=claim, name=missing.name)
    elif words:
        yield found("claim-pending/warning", about, *evidence, claim=claim, words=words)
    elif kinds.EVENT in snapshot.unread and not pod.text("spec", "nodeName"):
        return  # the claim may be bound late; the scheduler reports if the pod waits for it
    elif not any(each.text("reason") in _LATE for each in events) and not _is_provisioned(snapshot, claim):
        yield found("claim-pending", about, *evidence, claim=claim)


def _mount(snapshot: Snapshot, pod: LiveObject, event: LiveObject) -> Finding:
    words, line = " ".join(event.text("message").split()), snapshot.quote(event)
    if (missing := references.not_found(words, pod, line)) is not None:
        return missing
    if match := _KEY.search(words):
        return found("key-missing/volume", pod, line, key=match["key"])
    rule = "volume-in-use" if "Multi-Attach error" in words else "volume-mount"
    return found(rule, pod, line, pod=pod, words=words)
