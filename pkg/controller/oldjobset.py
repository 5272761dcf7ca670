# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A JobSet that is too old for a runtime: its CRD lacks the claims of pods, and the API server refuses them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from controller_runtime.machinery import Object
from controller_runtime.machinery.errors import StatusError

from pkg.apis.jobset.v1alpha2 import JobSet

MESSAGE: Final = (
    "the installed JobSet CRD has no spec.volumeClaimPolicies, which the runtime needs: "
    "install JobSet v0.11 or newer"
)
_UNDECLARED: Final = ".spec.volumeClaimPolicies: field not declared in schema"


class OldJobSetError(Exception):
    """The installed JobSet is too old for a runtime."""

    needs_no_stack = True


class ClaimsCheck:
    """Explains refused JobSets, and remembers the problem for the readiness endpoint."""

    def __init__(self) -> None:
        self._refused = False

    @contextmanager
    def applying(self, desired: Object) -> Iterator[None]:
        """Apply an object in the body.

        Raises:
            OldJobSetError: the API server refused a JobSet because of its claims.
        """
        concerned = isinstance(desired, JobSet) and bool(desired.spec.volume_claim_policies)
        try:
            yield
        except StatusError as error:
            if concerned and _UNDECLARED in str(error):
                self._refused = True
                raise OldJobSetError(MESSAGE) from error
            raise
        if concerned:
            self._refused = False

    def remark(self) -> str | None:
        """Return the problem; the manager stays ready, because other TrainJobs run."""
        return MESSAGE if self._refused else None
