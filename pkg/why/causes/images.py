# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Images that cannot be pulled."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from pkg.why.causes.statuses import Status, statuses
from pkg.why.finding import Finding, Severity
from pkg.why.liveobject import MOST_MATCHED, LiveObject, ago, text
from pkg.why.snapshot import CONTAINER_STEPS, Snapshot, event_time

REASONS: Final = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
    "SignatureValidationFailed",
)
"""The kubelet sets one of these waiting reasons if there is a problem with an image."""

_BY_TEXT: Final = (
    (
        re.compile("no space left on device"),
        "image-pull",
        "the node has no space left for the image {image}",
        "Free disk space on the pod's node, or use another node; the kubelet tries again by itself.",
    ),
    (
        re.compile(r"toomanyrequests|429 Too Many Requests|rate limit", re.IGNORECASE),
        "image-rate-limited",
        "the registry limits the rate of pulls of {image}",
        "Pull with credentials (imagePullSecrets), or from a mirror.",
    ),
    (
        re.compile(
            r"unauthorized|authentication required|denied|\b401\b|\b403\b|no basic auth|insufficient_scope",
            re.IGNORECASE,
        ),
        "image-unauthorized",
        "the registry refuses access to the image {image}",
        "Correct the image's name, or give the pods' service account imagePullSecrets.",
    ),
    (
        re.compile(
            r"not found|manifest unknown|does not exist|no match for platform|name unknown", re.IGNORECASE
        ),
        "image-not-found",
        "the image {image} does not exist",
        "Correct the image's name and tag, and check that the image is built for the nodes' architecture.",
    ),
)
_URL: Final = re.compile(r'https?://[^\s"]+')
_PULL_SECRETS: Final = re.compile(r"Unable to retrieve some image pull secrets \((?P<names>[^)]+)\)")


def find(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a finding for each container whose image cannot be pulled, and a note for each pod that pulls an image."""
    for pod in snapshot.pods:
        yield from _pulling(snapshot, pod)
    for status in statuses(snapshot):
        if status.waiting not in REASONS:
            continue
        events = snapshot.events(status.pod, "Failed", "FailedToRetrieveImagePullSecret", "InspectFailed")
        events = [each for each in events if _is_about(each, status)]
        messages = (status.message, *(each.text("message") for each in events))
        words = _without_names(status, " ".join(each[:MOST_MATCHED] for each in messages))
        cause, summary, advice = _cause(status, words)
        if (secrets := _PULL_SECRETS.search(words)) and cause in ("image-unauthorized", "image-not-found"):
            cause, named = "secret-missing", secrets["names"]
            summary = f"the image pull secrets {named} do not exist, and the registry refuses {status.image}"
            advice = f"Create the Secret in namespace {status.pod.namespace}, or correct imagePullSecrets."
        evidence = [status.line, *(snapshot.quote(each) for each in events[:2])]
        yield Finding(
            cause, f"{summary} (for the {status.label})", (str(status.pod),), tuple(evidence), advice
        )


def _pulling(snapshot: Snapshot, pod: LiveObject) -> Iterator[Finding]:
    """Yield a note if the newest event of a pod says that a pull has begun."""
    if pod.text("status", "phase") not in ("", "Pending"):
        return
    for event in snapshot.events(pod, *CONTAINER_STEPS, "Failed", "BackOff")[:1]:
        if event.text("reason") == "Pulling":
            image = event.text("message").partition('"')[2].strip('"')
            summary = f"the pull of the image {image} began {ago(event_time(event), snapshot.now)} ago"
            evidence = (snapshot.quote(event),)
            yield Finding("image-pulling", summary, (str(pod),), evidence, "Wait.", Severity.NOTE)


def _is_about(event: LiveObject, status: Status) -> bool:
    """Return True if an event is about the image of the container, or about the pull secrets of all containers."""
    named = re.search(rf"{re.escape(status.image)}(?![\w-])", event.text("message")[:MOST_MATCHED])
    return named is not None or event.text("reason") == "FailedToRetrieveImagePullSecret"


def _without_names(status: Status, words: str) -> str:
    """Remove the image's name and all URLs from a message. They may contain any words and numbers."""
    return _URL.sub("", words.replace(status.image, "") if status.image else words)


def _cause(status: Status, words: str) -> tuple[str, str, str]:
    image = text(status.data, "image") or status.image
    if status.waiting == "InvalidImageName":
        return "image-name-invalid", f"the image name {image!r} is not valid", "Correct the image's name."
    if status.waiting == "ErrImageNeverPull":
        advice = "Load the image on the nodes, or change imagePullPolicy from Never."
        return (
            "image-not-found",
            f"the image {image} is not on the node, and imagePullPolicy is Never",
            advice,
        )
    for pattern, cause, summary, advice in _BY_TEXT:
        if pattern.search(words):
            return cause, summary.format(image=image), advice
    advice = "Check that the nodes reach the registry; the kubelet tries again by itself."
    return "image-pull", f"the image {image} cannot be pulled", advice
