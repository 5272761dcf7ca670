# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The pod grouper: the walk from a pod to its top owner, and the question to that one's grouper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pkg.apis.core.v1 import Pod
from pkg.apis.machinery.errors import ExpiredError, ForbiddenError, StatusError
from pkg.apis.machinery.gvk import GVK
from pkg.apis.machinery.object import Object, OwnerReference, PartialObjectMetadata, Unstructured
from pkg.ctrl import log
from pkg.ctrl.rest import RestError

from .hub import PluginsHub
from .owners import Owners, pod_as_owner
from .plugins import GroupingError, fields
from .podgroup import Metadata

_log: Final = log.logger_from("podgrouper")


class PodGrouper:
    """Says to which group a pod belongs; writes nothing."""

    def __init__(self, owners: Owners, hub: PluginsHub) -> None:
        self._owners = owners
        self._hub = hub

    async def get_pod_owners(self, pod: Pod) -> tuple[Unstructured, list[PartialObjectMetadata]]:
        """Return the top owner, and the metadata of all owners on the way, nearest first.

        A pod without owners is its own top owner, with no owners on the way. An owner that we may not read
        ends the walk: the one before it, or the pod, is on top.

        Raises:
            GroupingError: an owner cannot be read, has several owners itself, or is its own ancestor.
            StatusError, RestError, CacheError: the top owner cannot be read.
        """
        top, owners = await self._walk(pod)
        reads = self._hub.grouper_for(type(top).gvk).reads
        return await self._owners.instance(top, reads), owners

    async def get_pg_metadata(self, pod: Pod, top_owner: Unstructured, owners: Sequence[Object]) -> Metadata:
        """Return the group that the top owner's grouper says. Raises what the grouper raises."""
        grouper = self._hub.grouper_for(type(top_owner).gvk)
        return await grouper.get_pod_group_metadata(top_owner, pod, *owners)

    def grouper_name(self, kind: GVK) -> str:
        """Return what the grouper of ``kind`` is called."""
        return self._hub.grouper_for(kind).name

    async def _walk(self, pod: Pod) -> tuple[PartialObjectMetadata, list[PartialObjectMetadata]]:
        owners: list[PartialObjectMetadata] = []
        references = pod.metadata.owner_references or []
        seen: set[tuple[str, str, str]] = set()
        while references:
            if owners and len(references) > 1:
                raise _several(owners[-1], pod.namespace, references)
            reference = references[0]
            if (which := (reference.kind, reference.name, reference.uid)) in seen:
                raise GroupingError(
                    f"found {reference.kind} <{reference.name} in namespace {pod.namespace}> among its own owners"
                )
            seen.add(which)
            try:
                owner = await self._owner(reference, pod.namespace)
            except ForbiddenError:
                _log.debug("No permissions to get owner", kind=reference.kind, name=reference.name)
                break
            except (StatusError, RestError) as error:
                raise GroupingError(
                    f"failed to find {reference.kind}: <{pod.namespace}/{reference.name}>, "
                    f"uid: <{reference.uid}>: {error}"
                ) from error
            owners.append(owner)
            references = owner.metadata.owner_references or []
        return (owners[-1] if owners else pod_as_owner(pod)), owners

    async def _owner(self, reference: OwnerReference, namespace: str) -> PartialObjectMetadata:
        owner = await self._owners.metadata(reference, namespace)
        if (owner.metadata.uid or "") != reference.uid:
            # Deleted, and another of the same name made.
            raise ExpiredError(
                f"Owner resource with uid {reference.uid} not found", code=410, reason="Expired"
            )
        return owner


def _several(owner: Object, namespace: str, references: Sequence[OwnerReference]) -> GroupingError:
    shown = " ".join(map(fields.go_owner_reference, references))
    return GroupingError(
        f"found {type(owner).gvk.kind} <{owner.name} in namespace {namespace}> with multiple owners: [{shown}]"
    )
