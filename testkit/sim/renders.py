# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Children of a TrainJob, rendered only from its current spec and a runtime: earlier states have no influence."""

from __future__ import annotations

from typing import Any

import msgspec
from controller_runtime.apis.core.v1 import Secret
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Object
from controller_runtime.machinery.errors import NotFoundError

from pkg.apis.config import v1alpha1 as config
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob
from pkg.runtime import core, runtime_ref_to_runtime_registry_key
from testkit.jobset import set_defaults
from testkit.sim.objects import controlled_by

Document = dict[str, Any]
_RUNTIMES = (ClusterTrainingRuntime.gvk, TrainingRuntime.gvk)


class Renders:
    """Builds children as a manager of the compatibility ``version`` does, without a cluster."""

    def __init__(self, version: str) -> None:
        self._cfg = config.defaulted(version)
        self._runtime: Document = {}
        self._train_job: Document = {}
        self._served: Any = None

    async def get(self, kind: Any, key: Any) -> Object:
        """Return the runtime, or the keys of an MPI TrainJob; nothing else exists."""
        if kind.gvk in _RUNTIMES:
            found: Object = kind.from_dict(self._runtime)
            return found
        if kind.gvk == Secret.gvk:
            references = controlled_by(self._train_job, TrainJob.gvk.api_version, "TrainJob")
            metadata = {"namespace": key[0], "name": key[1], "ownerReferences": references}
            keys: Object = kind.from_dict({"metadata": metadata})
            return keys
        raise NotFoundError(f"{kind.gvk.kind} {key} not found", code=404, reason="NotFound")

    async def list(self, _kind: Any, **_options: Any) -> list[Object]:
        """Return nothing."""
        return []

    async def children(self, train_job: Document, runtime: Document) -> dict[str, Document]:
        """Return the normalized children by kind, as if they were built while the TrainJob is suspended."""
        if self._served is None:
            self._served = await core.new(self, FakeClient(), cfg=self._cfg)  # type: ignore[arg-type]  # it reads nothing else
        self._runtime, self._train_job = runtime, train_job
        job = TrainJob.from_dict({**train_job, "spec": {**train_job["spec"], "suspend": True}})
        served = self._served[runtime_ref_to_runtime_registry_key(job.spec.runtime_ref)]
        return {
            each.gvk.kind: normalized(each.gvk.kind, each.to_dict()) for each in await served.new_objects(job)
        }


def normalized(kind: str, document: Document) -> Document:
    """Return the part of an object that clients write, with defaults and without empty fields."""
    copy: Document = msgspec.json.decode(msgspec.json.encode(document))
    if kind == "JobSet":
        set_defaults(copy["spec"])
        copy["spec"].pop("suspend", None)
    metadata = copy.get("metadata", {})
    ours = {key: metadata.get(key) for key in ("name", "labels", "annotations", "ownerReferences")}
    rest = {
        key: value for key, value in copy.items() if key not in ("metadata", "status", "apiVersion", "kind")
    }
    kept: Document = without_empty({"metadata": ours, **rest})
    return kept


def without_empty(value: Any) -> Any:
    """Return a copy without empty fields."""
    if isinstance(value, dict):
        kept = {key: without_empty(each) for key, each in value.items()}
        return {key: each for key, each in kept.items() if each not in (None, {}, [], "")}
    if isinstance(value, list):
        return [without_empty(each) for each in value]
    return value
