# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import NoReturn

from controller_runtime.apis.scheduling.v1 import PriorityClass
from controller_runtime.cache import CacheDegradedError
from controller_runtime.client import Reader, interceptor
from controller_runtime.fake import FakeClient

from pkg.apis.trainer.v1alpha1 import PodGroupPolicy, VolcanoPodGroupPolicySource
from pkg.runtime.core import new_runtime_info
from pkg.runtime.framework.plugins.volcano import Volcano
from testkit.builders import make_replicated_job, make_train_job, make_training_runtime_spec


async def errors_of(client: Reader, *priority_classes: str) -> list[str]:
    train_job = make_train_job("team-a", "job")
    jobs = [
        make_replicated_job(f"job-{number}", priority_class_name=name)
        for number, name in enumerate(priority_classes)
    ]
    policy = PodGroupPolicy(volcano=VolcanoPodGroupPolicySource())
    spec = make_training_runtime_spec(*jobs, pod_group_policy=policy)
    info = new_runtime_info(train_job, spec.template, spec.ml_policy, spec.pod_group_policy)
    warnings, errors = await Volcano(client).validate(info, None, train_job)
    assert warnings == []
    return [str(error) for error in errors]


def missing(why: str) -> str:
    return f'spec.templateSpec.priorityClassName: Invalid value: "a": PriorityClass "a" doesn\'t exist: {why}'


async def test_a_priority_class_that_many_jobs_name_is_looked_up_once() -> None:
    client = FakeClient()

    assert (
        await errors_of(client, *["a"] * 5)
        == [missing('priorityclasses.scheduling.k8s.io "a" not found')] * 5
    )
    assert len(client.calls) == 1


async def test_the_name_of_a_priority_class_is_quoted() -> None:
    (error,) = await errors_of(FakeClient(), "a\nb")

    assert error.endswith(
        'PriorityClass "a\\nb" doesn\'t exist: priorityclasses.scheduling.k8s.io "a\\nb" not found'
    )


async def test_priority_classes_that_may_not_be_read_count_as_missing() -> None:
    async def denied(*_args: object) -> NoReturn:
        raise CacheDegradedError(PriorityClass.gvk, "denied")

    client = interceptor.wrap(FakeClient(), interceptor.Funcs(get=denied))

    assert await errors_of(client, "a") == [missing("PriorityClass.scheduling.k8s.io: denied")]
