# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time
from typing import Any

from controller_runtime.apis.core.v1 import PodSpec

from pkg.util.resources import pod_requests


def container(cpu: str, **more: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **more}


def requests(**spec: Any) -> dict[str, str]:
    return pod_requests(PodSpec.from_dict(spec))


def test_containers_add_up_and_the_overhead_comes_on_top() -> None:
    assert requests(containers=[container("1"), container("500m")], overhead={"cpu": "250m"}) == {
        "cpu": "1750m"
    }


def test_the_largest_init_container_counts_if_it_is_more() -> None:
    assert requests(initContainers=[container("3"), container("2")], containers=[container("1")]) == {
        "cpu": "3"
    }
    assert requests(initContainers=[container("1")], containers=[container("2")]) == {"cpu": "2"}


def test_sidecars_stay_beside_the_containers_and_the_later_init_containers() -> None:
    sidecar = container("1", restartPolicy="Always")

    assert requests(initContainers=[sidecar], containers=[container("2")]) == {"cpu": "3"}
    assert requests(initContainers=[sidecar, container("4")], containers=[container("2")]) == {"cpu": "5"}
    assert requests(initContainers=[container("4"), sidecar], containers=[container("2")]) == {"cpu": "4"}


def test_a_sum_has_the_suffixes_of_the_init_container_and_not_of_its_sidecars() -> None:
    sidecar = container("1024k", restartPolicy="Always")
    assert requests(initContainers=[sidecar, container("1Ki")]) == {"cpu": "1001Ki"}

    sidecar = container("1Ki", restartPolicy="Always")
    assert requests(initContainers=[sidecar, container("1024k")]) == {"cpu": "1025024"}


def test_requests_of_the_pod_itself_replace_the_sum() -> None:
    assert requests(containers=[container("1")], resources={"requests": {"cpu": "5", "x/gpu": "1"}}) == {
        "cpu": "5"
    }


def test_thousands_of_sidecars_with_resources_of_their_own_take_little_time() -> None:
    names = [f"example.com/{number}" for number in range(4000)]
    sidecars = [
        {"name": name, "restartPolicy": "Always", "resources": {"requests": {name: "1"}}} for name in names
    ]
    later = [container("1") for _ in range(4000)]
    began = time.process_time()

    assert requests(initContainers=[*sidecars, *later]) == {**dict.fromkeys(names, "1"), "cpu": "1"}
    assert time.process_time() - began < 1
