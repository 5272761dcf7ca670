# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Limits for the objects in a review: a small text may decode to a large object.

A large body is counted while it arrives, and is refused before its end once it holds more than two objects may. Each
object is counted again before it is decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from controller_runtime import offload
from controller_runtime.apis.admission.v1 import AdmissionResponse
from controller_runtime.apis.machinery import shape

from . import admission, envelope

MAX_BODY: Final = 7 * 1024 * 1024
"""Two objects of 3 MB, the most that etcd accepts, and the rest of the review."""
LARGE: Final = 4 * 1024 * 1024
"""Bytes of a body that is larger than the review of two objects as etcd stores them, 1.5 MB each."""
BODY: Final = msgspec.structs.replace(
    shape.DEFAULT,
    size=MAX_BODY,
    containers=4 * shape.DEFAULT.containers,
    items=4 * shape.DEFAULT.items,
    depth=shape.DEFAULT.depth + 2,
)
"""The bounds of two objects and their managedFields, which may be as many again."""


class BodyInspection:
    """Looks at bodies while they arrive, see :class:`controller_runtime.httpserver.Inspection`."""

    size = 64 * 1024  # a smaller one cannot have too many of anything

    def begin(self) -> Callable[[bytes], str | None]:
        """Return a function that counts the bytes of one body, and refuses it only beyond :data:`LARGE`.

        A smaller one may be the review of a stored object: its metadata may change and it may be deleted, however much
        it holds.
        """
        counter, received, reason = shape.Counter(BODY), 0, None

        def inspect(piece: bytes) -> str | None:
            nonlocal received, reason
            received += len(piece)
            reason = reason or counter.feed(piece)
            return reason if received > LARGE else None

        return inspect


async def refuse(review: envelope.Review) -> AdmissionResponse | None:
    """Return the response to a review whose objects must not be decoded, or None if they may be.

    Objects lose their managedFields where only these are too much. Objects that were stored before there were bounds
    can be made smaller, change their metadata and be deleted: the former object of an update is left out when it alone
    is too large, so that the new one is validated as if it were created.
    """
    review.object, new = await offload.run(_bounded, review.object)
    review.old_object, old = await offload.run(_bounded, review.old_object)
    if new is None and old is None:
        return None
    if new is None:
        if review.object is None:
            return admission.allowed(warnings=[f"the object is not validated: it has {old}"])
        review.request.operation = admission.CREATE
        return None
    if await offload.run(review.only_metadata_changes):
        return admission.allowed(warnings=[f"the object is not validated: it has {new}"])
    return admission.denied(f"the object is too large: it has {new}")


def _bounded(obj: bytes | None) -> tuple[bytes | None, str | None]:
    """Return the object without managedFields if necessary, and the reason why it must not be decoded, if any."""
    if obj is None or shape.check(obj) is None:
        return obj, None
    slim = envelope.without_managed_fields(obj)
    return slim, shape.check(slim)
