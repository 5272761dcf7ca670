# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest

from pkg.apis.trainer.v1alpha1 import RuntimePatch, Trainer, TrainJob
from pkg.constants import trainer as constants
from pkg.util import generations
from testkit.builders import make_train_job

MIRROR = RuntimePatch(manager=constants.FIRST_GENERATION_MANAGERS[0])
OTHER = RuntimePatch(manager="a.io/b")


def with_annotation(word: str, **spec: Any) -> TrainJob:
    job = make_train_job("ns", "bert", **spec)
    job.metadata.annotations = {constants.NUM_PROC_PER_NODE_ANNOTATION: word}
    return job


def test_plugins_read_the_word_and_the_stored_object_does_not_change() -> None:
    job = with_annotation("gpu", trainer=Trainer(image="i"))
    read = generations.with_word(job)
    assert read.spec.trainer is not None
    assert (read.spec.trainer.num_proc_per_node, read.spec.trainer.image) == ("gpu", "i")
    assert job.spec.trainer is not None
    assert job.spec.trainer.num_proc_per_node is None


@pytest.mark.parametrize(
    "job",
    [
        with_annotation("gpu", trainer=Trainer(num_proc_per_node=2)),
        with_annotation("gpu"),
        make_train_job("ns", "bert", trainer=Trainer()),
    ],
    ids=["a number", "no trainer", "no word"],
)
def test_a_train_job_without_a_word_is_returned_itself(job: TrainJob) -> None:
    assert generations.with_word(job) is job


def test_the_mirror_is_applied_only_without_its_sources() -> None:
    present = make_train_job("ns", "bert", labels={"a": "b"}, runtime_patches=[MIRROR, OTHER])
    pruned = make_train_job("ns", "bert", runtime_patches=[MIRROR, OTHER])
    assert generations.runtime_patches(present.spec) == [OTHER]
    assert generations.runtime_patches(pruned.spec) == [MIRROR, OTHER]


def test_a_rewritten_train_job_has_the_same_spec() -> None:
    job = make_train_job("ns", "bert", trainer=Trainer(num_proc_per_node="auto"))
    assert generations.same_spec(job, with_annotation("auto", trainer=Trainer()))
    assert not generations.same_spec(job, with_annotation("gpu", trainer=Trainer()))
    number = make_train_job("ns", "bert", trainer=Trainer(num_proc_per_node=4))
    assert generations.same_spec(make_train_job("ns", "bert", trainer=Trainer(num_proc_per_node="4")), number)
    assert not generations.same_spec(
        number, make_train_job("ns", "bert", trainer=Trainer(num_proc_per_node=5))
    )
