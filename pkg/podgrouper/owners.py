# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Reads owners for the walk from a pod to its top owner. ``DirectOwners`` has no cache; ``ownercache`` has one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from controller_runtime import client
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.apis.meta.v1 import ObjectMeta, OwnerReference
from controller_runtime.machinery import (
    GVK,
    Object,
    PartialObjectMetadata,
    Unstructured,
    metadata_only,
    names,
    unstructured,
)

from .plugins import InvalidOwnerError, Reads

_SHOWN: Final = names.DNS1123_SUBDOMAIN_MAX_LENGTH


class DirectOwners:
    """Reads the metadata of owners from ``direct`` and the top owner from ``reader``.

    Nothing is cached, and no watch is started. For the methods, see :class:`.ownercache.OwnerCache`.
    """

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

    async def is_current(self, owner: PartialObjectMetadata, namespace: str) -> bool:
        """Return True, because we do not learn of changes."""
        del owner, namespace
        return True


def kind_of(owner: OwnerReference) -> GVK:
    """Return the kind that a reference names; parts of ``apiVersion`` after a second slash are ignored.

    The API server accepts any text in a reference. Text that cannot be part of a URL is rejected here.

    Raises:
        InvalidOwnerError: the kind, version or name is invalid.
    """
    group, slash, version = owner.api_version.partition("/")
    if not slash:
        group, version = "", group
    version = version.partition("/")[0]
    if not names.is_api_group(group) or not names.is_api_version(version):
        raise InvalidOwnerError(f'"{short(owner.api_version)}" is not a valid apiVersion')
    if not names.is_kind(owner.kind):
        raise InvalidOwnerError(f'"{short(owner.kind)}" is not a valid kind')
    if not names.is_path_segment(owner.name) or len(owner.name) > names.DNS1123_SUBDOMAIN_MAX_LENGTH:
        raise InvalidOwnerError(f'"{short(owner.name)}" is not a valid name')
    return GVK(group, version, owner.kind)


def followed(references: Sequence[OwnerReference]) -> OwnerReference | None:
    """Return the reference of an owner to its own owner, or None if it has none or it is unclear which one counts.

    If there are several references, the one to the controller counts. The others only delay or cause a deletion.
    """
    if len(references) == 1:
        return references[0]
    return next((each for each in references if each.controller), None)


def short(text: str, limit: int = _SHOWN) -> str:
    """Return ``text``, truncated to ``limit`` characters.

    Call this for text that users have chosen, before you log it or put it into an event.
    """
    return text if len(text) <= limit else f"{text[:limit]}..."


def pod_as_owner(meta: ObjectMeta) -> PartialObjectMetadata:
    """Return the metadata of a pod in the form in which we return the metadata of owners."""
    return metadata_only(Pod).of_metadata(meta)
