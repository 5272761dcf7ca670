# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Where the walk gets owners from: each time from the API server here; see ``ownercache`` for remembering."""

from __future__ import annotations

from typing import Protocol

from pkg.apis.core.v1 import Pod
from pkg.apis.machinery.gvk import GVK
from pkg.apis.machinery.object import (
    Object,
    OwnerReference,
    PartialObjectMetadata,
    Unstructured,
    metadata_only,
    unstructured,
)
from pkg.ctrl import client

from .plugins import Reads


class Owners(Protocol):
    """Reads owners. What it returns is shared and may not be changed."""

    async def metadata(self, owner: OwnerReference, namespace: str) -> PartialObjectMetadata:
        """Return the metadata of the object that ``owner`` names, whatever its UID.

        Raises:
            StatusError, RestError: it cannot be read.
        """
        ...

    async def instance(self, owner: Object, reads: Reads) -> Unstructured:
        """Return the object whose metadata is ``owner``, at least the parts that ``reads`` names.

        Raises:
            StatusError, RestError, CacheError: it cannot be read.
        """
        ...


class DirectOwners:
    """Asks each time: ``direct`` for metadata, ``reader`` for the top owner. No kind is watched for that."""

    def __init__(self, direct: client.Reader, reader: client.Reader) -> None:
        self._direct = direct
        self._reader = reader

    async def metadata(self, owner: OwnerReference, namespace: str) -> PartialObjectMetadata:
        """Return the metadata of the object that ``owner`` names."""
        return await self._direct.get(metadata_only(kind_of(owner)), (namespace, owner.name))

    async def instance(self, owner: Object, reads: Reads) -> Unstructured:
        """Return the whole object."""
        del reads
        return await self._reader.get(unstructured(type(owner).gvk), owner.key)


def kind_of(owner: OwnerReference) -> GVK:
    """Return the kind that a reference names; parts of ``apiVersion`` after a second slash are passed over."""
    group, slash, version = owner.api_version.partition("/")
    if not slash:
        group, version = "", group
    return GVK(group, version.partition("/")[0], owner.kind)


def pod_as_owner(pod: Pod) -> PartialObjectMetadata:
    """Return the metadata of a pod that is its own top owner."""
    kind = metadata_only(Pod)
    return kind.model_construct(api_version=kind.gvk.api_version, kind=kind.gvk.kind, metadata=pod.metadata)
