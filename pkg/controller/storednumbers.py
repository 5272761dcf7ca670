# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Rewrites TrainJobs that store ``numProcPerNode`` as a string, once, when a manager becomes the leader.

One such TrainJob breaks every typed client of Trainer v2.2 and later that lists its namespace. The mutating webhook
keeps new ones from being stored; these were stored before it existed.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from itertools import starmap
from typing import Final

import anyio
import anyio.lowlevel
import msgspec
from controller_runtime import client, log, source
from controller_runtime.cache import CacheError
from controller_runtime.machinery import JSON, NamespacedName
from controller_runtime.machinery.errors import ConflictError, NotFoundError, StatusError
from controller_runtime.machinery.tokenbucket import TokenBucket
from controller_runtime.rest import RestError

from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.constants import trainer as constants
from pkg.util import generations

PER_SECOND: Final = 5.0
"""Maximum rate of the requests."""
TRIES: Final = 3
"""Maximum number of requests for one TrainJob: another writer may change it meanwhile."""

FIRST_RETRY: Final = 10.0
"""Seconds before TrainJobs are tried again: at a start the webhooks may not be reachable yet. The delay doubles."""
LAST_RETRY: Final = 300.0

_STRING: Final = b'"numProcPerNode":"'
_TRANSIENT: Final = (HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND, HTTPStatus.TOO_MANY_REQUESTS)
_STEP: Final = 1024
"""Keys checked before other tasks may run."""

_log = log.logger_from("stored-numbers")


class StoredNumbers:
    """A runnable of the leader. ``reader`` reads from the server, past a cache that is behind."""

    name = "rewriting of stored strings in numProcPerNode"

    def __init__(self, writer: client.Client, reader: client.Reader, informers: source.Informers) -> None:
        self._client = writer
        self._reader = reader
        self._informers = informers

    async def start(self) -> None:
        """Rewrite the TrainJobs in the cache, and return.

        One that the server does not accept is logged and skipped. The others are tried until they are rewritten.
        """
        informer = await self._informers.get_informer(TrainJob)
        await informer.wait_for_sync()
        bucket = TokenBucket(PER_SECOND, 1, anyio.current_time)
        keys, delay = list(starmap(NamespacedName, informer.keys())), FIRST_RETRY
        while keys := await self._pass(keys, bucket):
            await anyio.sleep(delay)
            delay = min(2 * delay, LAST_RETRY)

    async def _pass(self, keys: Sequence[NamespacedName], bucket: TokenBucket) -> list[NamespacedName]:
        """Rewrite the TrainJobs, and return those to try again."""
        rewritten, failed, failure = 0, list[NamespacedName](), None
        for number, key in enumerate(keys, 1):
            if number % _STEP == 0:
                await anyio.lowlevel.checkpoint()
            try:
                if await self._holds_string(key):
                    rewritten += await self._rewrite(key, bucket)
            except (StatusError, RestError, CacheError, ValueError) as error:
                if _may_pass(error):
                    failed.append(key)
                    failure = error
                else:
                    _log.error("TrainJob stores numProcPerNode as a string", trainJob=str(key), error=error)
        if rewritten:
            _log.info("Rewrote strings in numProcPerNode", trainJobs=rewritten)
        if failed:
            _log.warning(
                "Strings in numProcPerNode are rewritten later", trainJobs=len(failed), error=failure
            )
        return failed

    async def _holds_string(self, key: NamespacedName) -> bool:
        """Return True if a cached TrainJob may store a string; most are not decoded for it."""
        try:
            found = await client.peek(self._client, TrainJob, key)
        except NotFoundError:
            return False
        if found.text is not None:
            return _STRING in found.text
        return patch_of(found.object) is not None

    async def _rewrite(self, key: NamespacedName, bucket: TokenBucket) -> bool:
        """Return True if the TrainJob was rewritten.

        Raises:
            ConflictError: other writers changed it at every try.
            ValueError: the number does not fit into 32 bits.
        """
        reader: client.Reader = self._client
        for tries in range(1, TRIES + 1):
            try:
                stored = await reader.get(TrainJob, key)
                body = patch_of(stored)
                if body is None:
                    return False
                await anyio.sleep(bucket.take())
                await self._client.patch(stored, client.raw_patch(client.MERGE, msgspec.json.encode(body)))
            except NotFoundError as error:
                if not error.names_object:
                    raise
                return False
            except ConflictError:
                if tries == TRIES:
                    raise
                reader = self._reader
            else:
                return True
        return False


def _may_pass(error: Exception) -> bool:
    """Return True if the same request may succeed later."""
    if isinstance(error, StatusError):
        return error.code >= HTTPStatus.INTERNAL_SERVER_ERROR or error.code in _TRANSIENT
    return isinstance(error, RestError)


def patch_of(train_job: TrainJob) -> dict[str, JSON] | None:
    """Return the merge patch that stores a number, or the word in the annotation; None if no string is stored.

    Raises:
        ValueError: the number does not fit into 32 bits.
    """
    trainer = train_job.spec.trainer
    if trainer is None or not isinstance(trainer.num_proc_per_node, str):
        return None
    value = generations.number_or_word(trainer.num_proc_per_node)
    metadata: dict[str, JSON] = {"resourceVersion": train_job.metadata.resource_version}
    if isinstance(value, str):
        metadata["annotations"] = {constants.NUM_PROC_PER_NODE_ANNOTATION: value}
        return {"metadata": metadata, "spec": {"trainer": {"numProcPerNode": None}}}
    return {"metadata": metadata, "spec": {"trainer": {"numProcPerNode": value}}}
