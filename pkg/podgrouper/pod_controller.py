# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The pod controller: creates the pod group of each pod that names our scheduler."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from operator import attrgetter
from typing import Final, NamedTuple

import controller_runtime as ctrl
import msgspec
from controller_runtime import client, log
from controller_runtime.apis.core.v1 import Namespace, Pod
from controller_runtime.apis.meta.v1 import ObjectMeta, OwnerReference
from controller_runtime.cache import UndecodableObjectError, older
from controller_runtime.machinery import NamespacedName, Object, metadata_only, names, raised
from controller_runtime.machinery.errors import ConflictError, InvalidError, NotFoundError
from controller_runtime.machinery.object import Owner
from controller_runtime.recorder import EventRecorder

from pkg import metrics
from pkg.apis.kai.v2alpha2 import PodGroup
from pkg.constants import kai

from .budget import Budget, OverBudgetError
from .ownercache import READ_TTL
from .owners import followed, short
from .plugins import GroupingError, InvalidOwnerError
from .plugins.grouper import HASH_LENGTH, fitting
from .plugins.native import native_gang
from .plugins.podjob import APP_SELECTOR_LABEL, is_spark_pod
from .podgroup import Handler, Metadata, Rules, SubGroupMetadata, why_left_out
from .podgrouper import Grouping, PodGrouper
from .regrouping import Regrouping
from .servedrules import CurrentRules, fixed
from .settings import Settings

_MESSAGE_LIMIT: Final = 1024
"""Maximum length of an event message that the API server accepts."""
_LONG: Final = 0.005
"""If decoding a pod takes more seconds than this, they are charged to its namespace. An ordinary pod takes a tenth of
it.
"""
_MANY: Final = 1_000
"""If a group has more subgroups than this, the time for the others is charged to the namespace of the pod."""
_SUB_GROUP: Final = 5e-6
"""Seconds that a pod takes for each subgroup of its group."""

_deleted_at: Final = attrgetter("metadata.deletion_timestamp")

_OURS: Final = re.compile(
    kai.POD_GROUP_NAME_PREFIX + r"-.+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(-[a-z0-9.-]+)?"
)
_OURS_SHORTENED: Final = re.compile(f"{kai.POD_GROUP_NAME_PREFIX}-.+-[0-9a-f]{{{HASH_LENGTH}}}")

_AGAIN: Final = timedelta(seconds=READ_TTL)
"""If the owners of a pod may have changed while we grouped it, we reconcile it again after this delay.

By then, the remembered metadata of the owners has expired and is read again.
"""
_RETRY: Final = timedelta(seconds=60)
"""If we may not read an owner or the gang of a pod, or the pod is in no subgroup, we reconcile it again after this
delay.

No event would report that our permissions have changed, or that a PodGang now lists the pod.
"""
_CONFLICT_DELAY: Final = timedelta(seconds=1)
"""If other clients change a group during each of our attempts to write it, we reconcile the pod again after this delay.
"""


class _OwnWrite(NamedTuple):
    """Our latest write to a pod, remembered until the cache shows it."""

    version: str
    is_only_change: bool
    """True if nothing else that we read from the pod changed at the same time, and the pod does not own the group."""
    found: Grouping


class PodReconciler:
    """Creates a pod's group in the cluster and annotates the pod with the group's name.

    Pods of other schedulers are ignored, and so are pods in namespaces that are not selected. Pods without an owner
    that already have a group are ignored, as in upstream: a user may have created that group. But if such a pod names a
    group that an earlier pod of its name had, because it was created again from its own YAML, it gets a new group, and
    the group of a gang of Kubernetes' own API follows the gang. By the rules of v0.17, an annotation on a pod or on one
    of its owners also excludes the pod.
    """

    def __init__(
        self,
        client: client.Client,
        recorder: EventRecorder,
        grouper: PodGrouper,
        handler: Handler,
        options: Settings | None = None,
        *,
        notices: EventRecorder | None = None,
        cpu: Callable[[], float] = time.thread_time,
        rules: CurrentRules | None = None,
        regrouping: Regrouping | None = None,
    ) -> None:
        """``notices`` records events about grouped pods; upstream records none."""
        self._rules = rules or fixed()
        self._regrouping = regrouping or Regrouping()
        self._client = client
        self._notices = notices
        self._recorder = recorder
        self._grouper = grouper
        self._handler = handler
        self._options = options or Settings()
        self._cpu = cpu
        self._budget = Budget()
        self._own_writes: dict[NamespacedName, _OwnWrite] = {}

    async def reconcile(self, request: ctrl.Request) -> ctrl.Result:
        """Update one pod's group and the pod's annotation.

        A pod whose namespace has used its share is reconciled again later.

        Raises:
            TerminalError: an owner reference is invalid, or the pod is undecodable. Retries fail until the pod changes.
            Exception: the pod was not grouped. If the pod could be read, an event on the pod contains the error's text.
        """
        try:
            return await self._reconcile(request)
        except OverBudgetError as error:
            log.logger_from().debug("Pod is put off", error=error)
            metrics.PODS_PUT_OFF.inc()
            return ctrl.Result(requeue_after=timedelta(seconds=error.delay))

    async def _reconcile(self, request: ctrl.Request) -> ctrl.Result:
        if not await self.selects(request.namespace):
            self._regrouping.forget(request)
            return ctrl.Result()
        try:
            if await self._has_nothing_new(request):
                return ctrl.Result()
            pod = await self._read(request)
        except NotFoundError:
            self._own_writes.pop(request, None)
            self._regrouping.forget(request)
            return ctrl.Result()
        if pod.spec.scheduler_name != self._options.scheduler_name or await self._keeps_its_group(pod):
            return ctrl.Result()
        try:
            return await self._group(pod)
        except OverBudgetError:
            raise
        except Exception as error:
            # Groupers may be third-party code, which may raise anything. The worker handles the error.
            self._report(pod, error)
            if isinstance(error, InvalidOwnerError):
                raise ctrl.TerminalError(str(error)) from error
            raise

    async def _read(self, request: ctrl.Request) -> Pod:
        """Return the pod. If decoding it takes long, the time is charged to its namespace."""
        self._budget.check(request.namespace)
        started = self._cpu()
        try:
            return await self._client.get(Pod, request)
        except UndecodableObjectError as error:
            named = ObjectMeta(namespace=request.namespace, name=request.name, uid=error.uid)
            self._report(Pod(metadata=named), error)
            raise ctrl.TerminalError(str(error)) from error
        finally:
            if (spent := self._cpu() - started) > _LONG:
                self._budget.spend(request.namespace, spent)

    def _report(self, pod: Pod, error: Exception) -> None:
        self._recorder.event(pod, "Warning", kai.POD_GROUPER_WARNING, raised.text(error)[:_MESSAGE_LIMIT])

    async def _has_nothing_new(self, key: NamespacedName) -> bool:
        """Return True if a reconcile of the pod would change nothing now.

        There are three cases. First, the cached pod is still older than our own write. Second, the cache shows our
        write for the first time, and nothing else has changed the pod or its owners. Third, the owners change all the
        time, and another pod has brought the group up to date for this period.
        """
        if period := self._regrouping.take(key):
            self._own_writes.pop(key, None)
            if self._regrouping.is_repeated(key, period):
                return True
        if (ours := self._own_writes.get(key)) is None:
            return False
        version = (await client.peek(self._client, Pod, key)).resource_version
        if older(version, ours.version):
            return True  # the cache will show our write later, which triggers a reconcile
        self._own_writes.pop(key, None)
        unchanged = ours.is_only_change and version == ours.version
        return unchanged and await self._grouper.is_current(ours.found, key.namespace)

    async def selects(self, namespace: str) -> bool:
        """Return True if pods of ``namespace`` are to be grouped."""
        wanted = self._options.namespace_labels
        if not wanted:
            return True
        try:
            found = await self._client.get(metadata_only(Namespace), ("", namespace))
        except NotFoundError:
            return False
        return wanted.items() <= found.labels.items()

    async def _keeps_its_group(self, pod: Pod) -> bool:
        """Return True if the pod has no owner, but a group that is not to be replaced."""
        name = pod.annotations.get(kai.POD_GROUP_ANNOTATION_FOR_POD)
        if name is None or pod.metadata.owner_references:
            return False
        if not name:
            return True
        try:
            owners = (await client.peek(self._client, PodGroup, (pod.namespace, name))).owner_references
        except NotFoundError:
            # The cache may lag behind the creation of the group.
            return keeps_group(pod, name, None) or await self._handler.exists(pod.namespace, name)
        self._regrouping.note(pod.key, name)
        return keeps_group(pod, name, owners)

    async def _group(self, pod: Pod) -> ctrl.Result:
        rules = await self._rules()
        may_skip = rules is not Rules.V0_13
        if may_skip and _is_skipped(pod):
            self._regrouping.forget(pod.key)
            return ctrl.Result()
        try:
            found = await self._grouper.get_pod_owners(pod, rules)
        except Exception as error:
            if pod.metadata.deletion_timestamp is None:
                raise
            # The owner of a pod that is being deleted may be deleted first.
            log.logger_from().debug("Pod is being deleted, and its owners cannot be read", error=error)
            return ctrl.Result()
        if may_skip and any(map(_is_skipped, found.owners)):
            self._regrouping.forget(pod.key)
            return ctrl.Result()
        try:
            metadata = await found.metadata(pod)
        except GroupingError:
            # An edit of an owner may mend this. Until then, the UID stands for the name of the group.
            self._regrouping.note(pod.key, pod.metadata.uid or "", found.inputs.read)
            raise
        self._regrouping.note(pod.key, metadata.name, found.inputs.read)
        current = pod.annotations.get(kai.POD_GROUP_ANNOTATION_FOR_POD)
        is_ending = any(map(_deleted_at, (pod, *found.owners)))
        if is_ending and current == metadata.name and not await self._exists(pod.namespace, current):
            return ctrl.Result()  # the group was deleted first
        if (more := len(metadata.sub_groups) - _MANY) > 0:
            self._budget.spend(pod.namespace, more * _SUB_GROUP)
        is_denied = found.inputs.is_denied
        if is_denied and current not in (None, metadata.name) and await self._exists(pod.namespace, current):
            # We could read it when the pod was grouped: lost permissions must not regroup the pod.
            log.logger_from().debug(
                "Pod keeps its group: not allowed to read an owner or a gang", podGroup=current
            )
            return ctrl.Result(requeue_after=_RETRY)
        key, labels = self._options.node_pool_label_key, metadata.labels
        pool = pod.labels.get(key) if key else None
        metadata.labels = labels if pool is None else {key: pool, **(labels or {})}
        try:
            created = await self._handler.apply_to_cluster(metadata, rules)
        except ConflictError as error:
            if rules is Rules.V0_13:
                raise
            log.logger_from().debug("PodGroup was changed by another writer", error=error)
            return ctrl.Result(requeue_after=_CONFLICT_DELAY)
        if created:
            unread = metadata.unread and f"default priority of {metadata.name}: {metadata.unread}"
            self._notice(pod, kai.DEFAULTS_NOT_READABLE, unread)
            self._notice(pod, kai.FIELD_IGNORED, metadata.ignored)
            self._notice(pod, kai.FIELD_IGNORED, why_left_out(metadata))
        sub_group = metadata.find_sub_group_for_pod(pod.namespace, pod.name)
        # A pod that has a node stays where it is. Others may get another group or subgroup, or their group a priority.
        is_settled = not is_denied and (sub_group is not None or not metadata.sub_groups)
        is_final = not metadata.unread and (bool(pod.spec.node_name) or is_settled)
        if await self._assign(pod, metadata, sub_group, found, is_final=is_final):
            self._report_owner(pod, found, metadata)
        if not await self._grouper.is_current(found, pod.namespace):
            return ctrl.Result(requeue_after=_AGAIN)
        return ctrl.Result(requeue_after=None if is_final else _RETRY)

    def _notice(self, pod: Pod, reason: str, message: str) -> None:
        if message and self._notices is not None:
            self._notices.event(pod, "Warning", reason, message[:_MESSAGE_LIMIT])

    async def _exists(self, namespace: str, group: str) -> bool:
        try:
            await client.peek(self._client, PodGroup, (namespace, group))
        except NotFoundError:
            return False
        return True

    def _report_owner(self, pod: Pod, found: Grouping, metadata: Metadata) -> None:
        """Report the chosen top owner and the reason in a metric and the log.

        If we were not allowed to read an owner, also record an event.
        """
        kind, grouper = type(found.top_owner).gvk, found.grouper.name
        if references := found.top_owner.metadata.owner_references:
            reason = "denied"
            owner = followed(references) or references[0]
            denied = f"{short(owner.kind)} {pod.namespace}/{short(owner.name)}"
            message = f"not allowed to read the owner {denied}: the pod is grouped without it"
            self._notice(pod, kai.OWNER_NOT_READABLE, message)
        else:
            reason = "top" if pod.metadata.owner_references else "none"
        metrics.PODS_GROUPED.labels(str(kind.group_kind), grouper, reason).inc()
        log.logger_from().debug(
            "Pod was given its group",
            podGroup=metadata.name,
            topOwner=f"{kind.kind} {found.top_owner.name}",
            plugin=grouper,
            reason=reason,
        )

    async def _assign(
        self, pod: Pod, metadata: Metadata, part: SubGroupMetadata | None, found: Grouping, *, is_final: bool
    ) -> bool:
        """Annotate the pod with its group, and label it with its subgroup ``part``; return True if the pod changed.

        As in upstream, the label of an earlier subgroup is not removed if the pod has left all subgroups. The patch
        contains the UID, so that the group of a deleted pod is not given to the next pod of this name.
        """
        patch: dict[str, dict[str, str]] = {}
        if pod.annotations.get(kai.POD_GROUP_ANNOTATION_FOR_POD, "") != metadata.name:
            patch["annotations"] = {kai.POD_GROUP_ANNOTATION_FOR_POD: metadata.name}
        if part is not None and part.name and pod.labels.get(kai.SUB_GROUP_LABEL_KEY, "") != part.name:
            patch["labels"] = {kai.SUB_GROUP_LABEL_KEY: part.name}
        if not patch:
            return False
        before = pod.metadata
        body = msgspec.json.encode({"metadata": {"uid": before.uid, **patch}})
        # Only the metadata of the response is needed.
        patched = metadata_only(Pod)(metadata=ObjectMeta(name=before.name, namespace=before.namespace))
        try:
            after = (await self._client.patch(patched, client.raw_patch(client.MERGE, body))).metadata
        except InvalidError as error:
            if not any(cause.get("field") == "metadata.uid" for cause in error.causes):
                raise
            return False  # the event of the new pod is on its way
        self._own_writes[pod.key] = _OwnWrite(
            after.resource_version or "",
            (after.labels or {}) == {**pod.labels, **patch.get("labels", {})}
            and (after.annotations or {}) == {**pod.annotations, **patch.get("annotations", {})}
            and after.generation == before.generation
            and after.deletion_timestamp == before.deletion_timestamp
            and after.owner_references == before.owner_references
            and metadata.owner.uid != before.uid  # a group that the pod owns copies the pod's annotations
            and is_final,  # else the event replaces the retry in the queue
            found,
        )
        return True


def _is_skipped(obj: Object) -> bool:
    """Return True if an annotation excludes the object's pods."""
    return obj.annotations.get(kai.SKIP_POD_GROUPER_KEY) == "true"


def keeps_group(pod: Pod, group: str, owners: Iterable[Owner | OwnerReference] | None) -> bool:
    """Return False if ``group`` is that of an earlier pod without owners that had the name of ``pod``.

    Also return False if the pod names a gang: its group follows the gang. Only a pod that runs in another group stays
    there. ``owners`` are those of the group; None means that the group does not exist.
    """
    if not _is_ours(pod, group):
        return True
    if owners is not None and (gang := native_gang(pod)) is not None:
        is_of_gang = any((owner.kind, owner.name) == (gang.kind, gang.name) for owner in owners)
        return bool(pod.spec.node_name) and not is_of_gang
    return owners is not None and not any(
        owner.kind == Pod.gvk.kind and owner.name == pod.name and owner.uid != pod.metadata.uid
        for owner in owners
    )


def _is_ours(pod: Pod, group: str) -> bool:
    """Return True if a pod grouper may have given this group to the pod, to an earlier pod, or to one that was copied.

    The owners of the pod may have been removed, so the name may be that of another object.
    """
    if is_spark_pod(pod):
        return group == fitting(pod.labels[APP_SELECTOR_LABEL])
    if len(group) > names.DNS1123_SUBDOMAIN_MAX_LENGTH:
        return False
    is_shortened = len(group) == names.DNS1123_SUBDOMAIN_MAX_LENGTH and _OURS_SHORTENED.fullmatch(group)
    return bool(is_shortened or _OURS.fullmatch(group))
