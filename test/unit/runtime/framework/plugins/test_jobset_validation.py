# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import time

import pytest

from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.runtime.framework.plugins.jobset.validation import validate_overrides


def test_of_countless_ways_to_be_wrong_only_some_are_told_for_each_quotes_all_overrides() -> None:
    targets = [{"name": f"job-{number}"} for number in range(500)]
    spec = {"podTemplateOverrides": [{"targetJobs": targets, "spec": {"containers": [{"name": "c"}] * 3}}]}
    errors = validate_overrides({"node": {"node"}}, TrainJob.from_dict({"metadata": {}, "spec": spec}))

    assert len({error.detail for error in errors}) == 16
    assert len(set(map(id, errors))) == 16
    assert errors[1].detail == "must not have container that doesn't exist in the runtime job job-0"


@pytest.mark.parametrize("known", ["c-1", "node"])
def test_a_job_that_an_override_names_thousands_of_times_is_checked_once(known: str) -> None:
    containers = [{"name": name} for name in ("node", "a", "b", "c")] * 1000
    spec = {
        "podTemplateOverrides": [{"targetJobs": [{"name": known}] * 5000, "spec": {"containers": containers}}]
    }
    began = time.process_time()

    errors = validate_overrides({"node": {"node"}}, TrainJob.from_dict({"metadata": {}, "spec": spec}))

    assert time.process_time() - began < 8  # much more if each name is checked
    assert len(errors) == (3 if known == "node" else 5)
