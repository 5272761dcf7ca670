# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The rule for leases: one that is renewed stays with its holder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from controller_runtime.apis.coordination.v1 import Lease

from .history import Event


class Leases:
    """Follows the leases of a cluster by the time at which the server stored them."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._stored: dict[str, float] = {}
        """By uid, when a lease was last written."""

    def see(self, event: Event) -> None:
        """Check a change. Raises AssertionError if a lease was taken from a holder whose time was not over."""
        if event.table.facts.gvk != Lease.gvk or event.type == "DELETED":
            return
        metadata, spec = event.document["metadata"], _spec(event.document)
        before, now = _spec(event.before), self._now()
        holder, written = before.get("holderIdentity"), self._stored.get(metadata["uid"], now)
        left = written + float(before.get("leaseDurationSeconds") or 0) - now
        self._stored[metadata["uid"]] = now
        if holder and spec.get("holderIdentity") not in (holder, "", None) and left > 0:
            raise AssertionError(
                f"a lease was taken from its holder too early: {metadata['name']}: {left:.1f} s"
            )


def _spec(document: dict[str, Any] | None) -> dict[str, Any]:
    return (document or {}).get("spec") or {}
