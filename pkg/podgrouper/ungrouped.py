# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The order of work after a start: pods without a group come first."""

from __future__ import annotations

from controller_runtime import cache, client, source
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import NamespacedName
from controller_runtime.machinery.errors import NotFoundError

from pkg.constants import kai


def ungrouped_first(informers: source.Informers, reader: client.Reader) -> source.Expedited:
    """Return the source that moves pods without the annotation of a group to the front of the queue.

    They were created while no pod grouper ran, and are not scheduled before they have a group. Most of the others need
    no work. Of each pod, only the metadata is decoded.
    """

    async def lacks_group(key: NamespacedName) -> bool:
        try:
            annotations = (await client.peek(reader, Pod, key)).metadata.annotations
        except (NotFoundError, cache.CacheError):
            return False
        return kai.POD_GROUP_ANNOTATION_FOR_POD not in (annotations or {})

    return source.Expedited(informers, Pod, lambda _pods: lacks_group, name="pods without a group")
