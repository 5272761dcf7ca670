# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Supports the placement of TrainJobs by Kueue v0.17 and newer, including TrainJobs that older releases have placed.

The older releases, up to v0.16, place a TrainJob by overrides with a label. The newer releases use an entry of
``runtimePatches`` instead. Their webhook adds this entry only to new TrainJobs, and they neither read nor remove the
overrides. Without this module, Kueue could therefore not evict a TrainJob with such overrides after an upgrade, nor
place it again.
"""

from __future__ import annotations

from collections.abc import Iterable

from controller_runtime.machinery import equality

from pkg.apis.trainer import v1alpha1 as trainer
from pkg.constants import trainer as constants
from pkg.util import generations

from .putguard import OVERRIDES, Dropped, has_active_jobs


def hand_over(old: trainer.TrainJob, new: trainer.TrainJob, put_back: Iterable[Dropped]) -> None:
    """If an older release has placed the TrainJob, hand the TrainJob over to a newer release.

    If ``put_back`` contains the overrides, they were dropped by a client that does not know them, such as a newer
    release. In this case, add the entry of the newer release. If the TrainJob has the entry, is suspended and has no
    active jobs, remove the older placement, as Kueue does after an eviction. A placement that this request has changed
    is kept, because it was written by an older release: Kueue was rolled back.
    """
    placed = _placement(new)
    if not placed:
        return
    if Dropped(OVERRIDES) in put_back and not _has_entry(new):
        template = trainer.JobSetTemplatePatch(spec=trainer.JobSetSpecPatch())
        spec = trainer.TrainingRuntimeSpecPatch(template=template)
        entry = trainer.RuntimePatch(manager=constants.KUEUE_MANAGER, training_runtime_spec=spec)
        new.spec.runtime_patches = [*(new.spec.runtime_patches or []), entry]
    if (
        _has_entry(new)
        and old.spec.suspend
        and new.spec.suspend
        and not has_active_jobs(old)
        and equality.deep_equal(_placement(old), placed)
    ):
        kept = [each for each in new.spec.pod_template_overrides or () if not generations.is_placement(each)]
        new.spec.pod_template_overrides = kept or None


def keep_last(old: trainer.TrainJob | None, new: trainer.TrainJob) -> None:
    """Move the entry of the newer releases to the end of the patches, so that it is applied last.

    If the request does not change the patches, their order is kept, because a change of the order would be refused for
    a running TrainJob.
    """
    patches = new.spec.runtime_patches
    if patches and (old is None or not equality.deep_equal(old.spec.runtime_patches, patches)):
        new.spec.runtime_patches = sorted(patches, key=_is_entry)


def _is_entry(patch: trainer.RuntimePatch) -> bool:
    return patch.manager == constants.KUEUE_MANAGER


def _has_entry(train_job: trainer.TrainJob) -> bool:
    return any(map(_is_entry, train_job.spec.runtime_patches or ()))


def _placement(train_job: trainer.TrainJob) -> list[trainer.PodTemplateOverride]:
    return list(filter(generations.is_placement, train_job.spec.pod_template_overrides or ()))
