# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The interface of a grouper."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import ClassVar

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.apis.machinery.object import Object, Unstructured

from pkg.podgrouper.podgroup import Metadata


class Reads(Enum):
    """How much of its top owner a grouper looks at. What it does not look at need not be fetched, nor be fresh."""

    METADATA = "metadata"
    """Nothing else; the rest of the object may be missing."""
    SPEC = "spec"
    """All but ``status``, which may be old: what changes with ``metadata.generation``."""
    OBJECT = "object"
    """Everything."""


class Grouper(ABC):
    """Says which group the pods of a kind of workload make. One instance serves all reconciles at once."""

    name: ClassVar[str]
    """How logs and ``trainerctl group`` call it."""
    reads: ClassVar[Reads] = Reads.OBJECT
    """How much of the top owner it looks at; the less, the fewer requests."""

    @abstractmethod
    async def get_pod_group_metadata(
        self, top_owner: Unstructured, pod: Pod, *other_owners: Object
    ) -> Metadata:
        """Return the group of ``pod``.

        ``other_owners`` are the metadata of the pod's owners, nearest first, the top owner among them; none for
        a pod without owners, which is its own top owner. None of the arguments may be changed.

        Raises:
            GroupingError: the owner is not as its kind says.
            StatusError: something that is needed beside the owner could not be read.
        """
