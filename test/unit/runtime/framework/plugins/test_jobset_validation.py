# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.runtime.framework.plugins.jobset.validation import validate_overrides


def test_of_countless_ways_to_be_wrong_only_some_are_told_for_each_quotes_all_overrides() -> None:
    targets = [{"name": f"job-{number}"} for number in range(500)]
    spec = {"podTemplateOverrides": [{"targetJobs": targets, "spec": {"containers": [{"name": "c"}] * 3}}]}
    errors = validate_overrides({"node": {"node"}}, TrainJob.from_dict({"metadata": {}, "spec": spec}))

    assert len({error.detail for error in errors}) == 16
    assert len(set(map(id, errors))) == 16
    assert errors[1].detail == "must not have container that doesn't exist in the runtime job job-0"
