# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Images that cannot be pulled."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from pkg.why.causes.statuses import Status, statuses
from pkg.why.finding import Finding, found
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
    (re.compile("no space left on device"), "image-pull/space"),
    (re.compile("x509: |HTTP response to HTTPS client"), "image-pull/untrusted"),
    (re.compile(r"toomanyrequests|429 Too Many Requests|rate limit", re.IGNORECASE), "image-rate-limited"),
    (
        re.compile(
            r"unauthorized|authentication required|denied|\b401\b|\b403\b|no basic auth|insufficient_scope",
            re.IGNORECASE,
        ),
        "image-unauthorized",
    ),
    (
        re.compile(
            r"not found|manifest unknown|does not exist|no match for platform|name unknown", re.IGNORECASE
        ),
        "image-not-found",
    ),
    (re.compile(""), "image-pull"),
)
"""The rules by what the message contains."""
_BY_REASON: Final = {"InvalidImageName": "image-name-invalid", "ErrImageNeverPull": "image-not-found/never"}
_URL: Final = re.compile(r'https?://[^\s"]+')
_PULL_SECRETS: Final = re.compile(r"Unable to retrieve some image pull secrets \((?P<names>[^)]+)\)")


def find(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a finding for each container whose image cannot be pulled, and a note for each pod that pulls an image."""
    for pod in snapshot.pods:
        pulls = snapshot.events(pod, *CONTAINER_STEPS, "Failed", "BackOff")[:1]
        if pulls and pulls[0].text("reason") == "Pulling" and pod.text("status", "phase") in ("", "Pending"):
            image = pulls[0].text("message").partition('"')[2].strip('"')
            age = ago(event_time(pulls[0]), snapshot.now)
            yield found("image-pulling", pod, snapshot.quote(pulls[0]), image=image, age=age)
    for status in statuses(snapshot):
        if status.waiting not in REASONS:
            continue
        events = snapshot.events(status.pod, "Failed", "FailedToRetrieveImagePullSecret", "InspectFailed")
        events = [each for each in events if _is_about(each, status)]
        messages = (status.message, *(each.text("message") for each in events))
        words = " ".join(each[:MOST_MATCHED] for each in messages)
        # The image's name and URLs may contain any words and numbers.
        words = _URL.sub("", words.replace(status.image, "") if status.image else words)
        rule = _BY_REASON.get(status.waiting) or next(rule for each, rule in _BY_TEXT if each.search(words))
        secrets = _PULL_SECRETS.search(words)
        if secrets and rule in ("image-unauthorized", "image-not-found", "image-not-found/never"):
            rule = "secret-missing/image"
        image, names = text(status.data, "image") or status.image, secrets and secrets["names"]
        evidence = [status.line, *(snapshot.quote(each) for each in events[:2])]
        yield found(rule, status.pod, *evidence, status=status, image=image, names=names)


def _is_about(event: LiveObject, status: Status) -> bool:
    """Return True if an event is about the image of the container, or about the pull secrets of all containers."""
    named = re.search(rf"{re.escape(status.image)}(?![\w-])", event.text("message")[:MOST_MATCHED])
    return named is not None or event.text("reason") == "FailedToRetrieveImagePullSecret"
