# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pkg.runtime import indexer
from testkit.builders import (
    make_cluster_training_runtime,
    make_replicated_job,
    make_train_job,
    make_training_runtime,
    make_training_runtime_spec,
)


def test_a_train_job_is_indexed_under_the_kind_it_refers_to() -> None:
    cluster = make_train_job("a", "j", runtime="r")
    namespaced = make_train_job("a", "j", runtime="r", runtime_kind="TrainingRuntime")
    foreign = make_train_job("a", "j", runtime="r", runtime_kind="Foo")

    assert [indexer.index_train_job_training_runtime(job) for job in (cluster, namespaced, foreign)] == [
        [],
        ["r"],
        [],
    ]
    assert [
        indexer.index_train_job_cluster_training_runtime(job) for job in (cluster, namespaced, foreign)
    ] == [
        ["r"],
        [],
        [],
    ]


def test_runtimes_are_indexed_by_the_runtime_classes_they_name() -> None:
    spec = make_training_runtime_spec(
        make_replicated_job("a", runtime_class_name="gvisor"),
        make_replicated_job("b"),
        make_replicated_job("c", runtime_class_name="kata"),
    )

    cluster = make_cluster_training_runtime(spec=spec)
    assert indexer.index_container_runtime_class(cluster) == ["gvisor", "kata"]
    namespaced = make_training_runtime("a", spec=spec)
    assert indexer.index_container_runtime_class(namespaced) == ["gvisor", "kata"]
