# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from pkg.podgrouper.plugins import GroupingError


@pytest.mark.parametrize(("count", "needed"), [(4, 4), (2**32 + 3, 3), (0, 0)])
async def test_an_aml_job_needs_its_nodes(
    count: int, needed: int, make_object: Any, make_pod: Any, group: Any
) -> None:
    spec = {"job": {"options": {"envs": {"AZUREML_NODE_COUNT": count}}}}
    job = make_object("amlarc.azureml.com/v1alpha1", "AmlJob", "a", spec=spec)

    assert (await group(make_pod("p", job), job)).min_available == needed


@pytest.mark.parametrize("envs", [{}, [], None, {"AZUREML_NODE_COUNT": "4"}, {"AZUREML_NODE_COUNT": True}])
async def test_an_aml_job_without_a_count_is_refused(
    envs: Any, make_object: Any, make_pod: Any, group: Any
) -> None:
    job = make_object("amlarc.azureml.com/v1alpha1", "AmlJob", "a", spec={"job": {"options": {"envs": envs}}})

    with pytest.raises(GroupingError, match=r"^azureml envs count not found in spec$"):
        await group(make_pod("p", job), job)
