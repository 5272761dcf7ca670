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


def test_the_overhead_comes_on_top() -> None:
    assert requests(containers=[container("1"), container("500m")], overhead={"cpu": "250m"}) == {
        "cpu": "1750m"
    }


def test_a_sum_has_the_suffixes_of_the_init_container_and_not_of_its_sidecars() -> None:
    sidecar = container("1024k", restartPolicy="Always")
    assert requests(initContainers=[sidecar, container("1Ki")]) == {"cpu": "1001Ki"}

    sidecar = container("1Ki", restartPolicy="Always")
    assert requests(initContainers=[sidecar, container("1024k")]) == {"cpu": "1025024"}


def test_requests_of_the_pod_itself_replace_the_sum_only_for_some_resources() -> None:
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
    assert time.process_time() - began < 8  # it would be about 20 if quadratic
