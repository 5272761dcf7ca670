# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Looks up and watches the ConfigMaps and Secrets with which plugins give files to pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
from controller_runtime.apis.core.v1 import ConfigMap, Secret
from controller_runtime.client import Reader
from controller_runtime.machinery import NamespacedName, Object, metadata_only
from controller_runtime.machinery.errors import NotFoundError

from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.runtime.framework.interface import (
    ComponentBuilderPlugin,
    EnforceMLPolicyPlugin,
    WatchExtensionPlugin,
)
from pkg.runtime.interface import ReconcilerBuilder
from pkg.util import trainjob

if TYPE_CHECKING:
    from controller_runtime import event, source
    from controller_runtime.builder import Builder
    from controller_runtime.cache import Cache
    from controller_runtime.client import Client


class FilesPlugin(EnforceMLPolicyPlugin, ComponentBuilderPlugin, WatchExtensionPlugin):
    """The base of plugins that build ConfigMaps and generated Secrets.

    A subclass sets ``_needed`` when it builds such an object.
    """

    def __init__(self, client: Reader) -> None:
        self._client = client
        self._needed = anyio.Event()

    def reconciler_builders(self) -> list[ReconcilerBuilder]:
        """Watch the metadata of the TrainJobs' ConfigMaps and Secrets.

        The watches begin when this plugin has built the first of these objects.
        """
        return [self._watch]

    def _watch(self, builder: Builder, _client: Client, _cache: Cache) -> Builder:
        for kind in (ConfigMap, Secret):
            builder = watch(builder, kind, when=self._needed.wait)
        return builder


async def has_secret(
    client: Reader, train_job: TrainJob, suffix: str, *, may_be_foreign: bool = False
) -> bool:
    """Return True if the TrainJob's Secret exists. If it exists, its content must not be generated again.

    With ``may_be_foreign``, a Secret that a user created beforehand is accepted. A Secret of an earlier TrainJob of the
    same name is never accepted, because the garbage collector will delete it.

    Raises:
        PredecessorError: an earlier TrainJob of the same name controls the Secret.
        ChildConflictError: the TrainJob does not control the Secret, and ``may_be_foreign`` is False.
        StatusError: the Secret could not be read. A missing Secret is not an error.
    """
    key = NamespacedName(train_job.namespace, train_job.name + suffix)
    try:
        found = await client.get(metadata_only(Secret), key)
    except NotFoundError:
        return False
    try:
        trainjob.require_control(found, trainjob.controller_reference(train_job))
    except trainjob.ChildConflictError as conflict:
        if not may_be_foreign or isinstance(conflict, trainjob.PredecessorError):
            raise
    return True


def watch(
    builder: Builder, kind: type[Object], *, suffix: str = "", when: source.When | None = None
) -> Builder:
    """Watch the metadata of the objects of ``kind`` that TrainJobs control.

    Objects whose names do not end in ``suffix`` are ignored. The watch begins when the function ``when`` has returned.
    """
    from controller_runtime import handler, predicate  # rendering without a cluster loads no controllers

    def named(evt: event.CreateEvent[Object] | event.UpdateEvent[Object] | event.DeleteEvent[Object]) -> bool:
        return evt.key.name.endswith(suffix)

    owner = handler.enqueue_request_for_owner(TrainJob, only_controller=True)
    predicates = [predicate.NotOwnWrite(), predicate.Funcs(create=named, update=named, delete=named)]
    return builder.watches(kind, owner, predicates=predicates, only_metadata=True, when=when)
