# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The pod grouper. It walks from a pod to its top owner and finds the grouper for this owner."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from controller_runtime import log
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.apis.meta.v1 import OwnerReference
from controller_runtime.machinery import PartialObjectMetadata, Unstructured, names
from controller_runtime.machinery.errors import ExpiredError, ForbiddenError, StatusError
from controller_runtime.rest import RestError

from .hub import PluginsHub
from .ownercache import OwnerCache
from .owners import DirectOwners, followed, pod_as_owner, short
from .plugins import Grouper, GroupingError, Inputs, InvalidOwnerError, fields
from .plugins.grouper import fitting, inputs
from .plugins.native import native_gang
from .podgroup import OLDEST, Metadata, Rules

_MAX_DEPTH: Final = 64
"""Maximum length of a chain of owners; the chains of real workloads are less than a tenth as long."""
_SHOWN: Final = 4
"""Maximum number of owner references that an error message shows."""
_SHOWN_LENGTH: Final = 1024
_SUB_GROUP_NAME: Final = re.compile("[a-z0-9]([-a-z0-9]*[a-z0-9])?")

_log: Final = log.logger_from("podgrouper")


class Grouping(NamedTuple):
    """Result of the walk from a pod to its top owner."""

    grouper: Grouper
    """The grouper of the top owner's kind, or of the gang that the pod names."""
    top_owner: Unstructured
    owners: list[PartialObjectMetadata]
    """The metadata of the pod's owners, nearest first, including the top owner; empty for a pod without owners."""
    inputs: Inputs
    rules: Rules = OLDEST

    async def metadata(self, pod: Pod) -> Metadata:
        """Return the group of ``pod``. Errors of the grouper are raised unchanged."""
        with self.inputs.collecting():
            metadata = await self.grouper.get_pod_group_metadata(self.top_owner, pod, *self.owners)
        metadata.unread = next(iter(self.inputs.unread), "")
        metadata.name = fitting(metadata.name, is_valid=bool)
        # A label of the pods has the name of the subgroup as its value. Later schemas of PodGroup permit fewer names.
        is_valid = bool if self.rules is Rules.V0_13 else _SUB_GROUP_NAME.fullmatch
        fitted = {
            each.name: fitting(each.name, names.LABEL_VALUE_MAX_LENGTH, is_valid)
            for each in metadata.sub_groups
        }
        for part in metadata.sub_groups:
            part.name = fitted[part.name]
            part.parent = part.parent and fitted.get(part.parent, part.parent)
        return metadata


class PodGrouper:
    """Finds the owners of a pod and the grouper for them; writes nothing."""

    def __init__(self, owners: OwnerCache | DirectOwners, hub: PluginsHub) -> None:
        self._owners = owners
        self._hub = hub

    async def get_pod_owners(self, pod: Pod, rules: Rules = OLDEST) -> Grouping:
        """Return the top owner, the metadata of all owners up to it, and the grouper that ``rules`` select for it.

        If the pod names a gang of Kubernetes' own API, the grouper is that of the gang. A pod without owners is its own
        top owner. If we are not permitted to read an owner, the walk ends, and the last owner that we have read (or the
        pod) becomes the top owner.

        Raises:
            InvalidOwnerError: no object can match the pod's reference.
            GroupingError: an owner cannot be read, was replaced by another object, has several owners itself, or is its
                own ancestor, or the chain of owners is too long.
            StatusError, RestError, CacheError: the top owner cannot be read.
        """
        inputs = Inputs()
        with inputs.collecting():
            top, owners = await self._walk(pod)
            grouper = self._hub.grouper_for(type(top).gvk, rules)
            if (gang := native_gang(pod)) is not None:
                grouper = self._hub.grouper_for_gang(gang, grouper)
            found = await self._owners.instance(top, grouper.reads)
        if found.metadata.uid != top.metadata.uid:
            # The walk used metadata of an owner that has been deleted, and another one with its name was created.
            reference = OwnerReference(kind=found.gvk.kind, name=top.name, uid=top.metadata.uid or "")
            raise GroupingError(_not_found(reference, pod, _expired(reference)))
        return Grouping(grouper, found, owners, inputs, rules)

    async def is_current(self, found: Grouping, namespace: str) -> bool:
        """Return False if an owner may have changed since :meth:`get_pod_owners` returned ``found``."""
        for each in found.owners:
            if not await self._owners.is_current(each, namespace):
                return False
        return True

    async def _walk(self, pod: Pod) -> tuple[PartialObjectMetadata, list[PartialObjectMetadata]]:
        owners: list[PartialObjectMetadata] = []
        references = pod.metadata.owner_references or []
        seen: set[tuple[str, str, str]] = set()
        while references:
            if (reference := followed(references)) is None and owners:
                shown = [
                    short(fields.go_owner_reference(each), _SHOWN_LENGTH) for each in references[:_SHOWN]
                ]
                more = " ..." if len(references) > _SHOWN else ""
                raise GroupingError(
                    f"found {type(owners[-1]).gvk.kind} <{owners[-1].name} in namespace {pod.namespace}> with multiple"
                    f" owners: [{' '.join(shown)}{more}]"
                )
            if reference is None or not owners:
                reference = references[0]  # as in upstream, the first owner of a pod counts
            if (which := (reference.kind, reference.name, reference.uid)) in seen:
                raise GroupingError(
                    f"found {short(reference.kind)} <{short(reference.name)} in namespace {pod.namespace}> "
                    "among its own owners"
                )
            if len(owners) == _MAX_DEPTH:
                raise GroupingError(
                    f"pod {pod.namespace}/{pod.name} has a chain of more than {_MAX_DEPTH} owners"
                )
            seen.add(which)
            try:
                owner = await self._owners.metadata(reference, pod.namespace)
                if (owner.metadata.uid or "") != reference.uid:
                    # The owner was deleted, and another one with its name was created.
                    raise _expired(reference)
            except InvalidOwnerError as error:
                # The pod's own references change only with the pod.
                raise (GroupingError if owners else InvalidOwnerError)(
                    _not_found(reference, pod, error)
                ) from error
            except ForbiddenError:
                _log.debug(
                    "No permissions to get owner", kind=short(reference.kind), name=short(reference.name)
                )
                inputs().is_denied = True
                break
            except (StatusError, RestError) as error:
                raise GroupingError(_not_found(reference, pod, error)) from error
            owners.append(owner)
            references = owner.metadata.owner_references or []
        return (owners[-1] if owners else pod_as_owner(pod.metadata)), owners


def _expired(reference: OwnerReference) -> ExpiredError:
    return ExpiredError(
        f"Owner resource with uid {short(reference.uid)} not found", code=410, reason="Expired"
    )


def _not_found(reference: OwnerReference, pod: Pod, error: Exception) -> str:
    return (
        f"failed to find {short(reference.kind)}: <{pod.namespace}/{short(reference.name)}>, "
        f"uid: <{short(reference.uid)}>: {error}"
    )
