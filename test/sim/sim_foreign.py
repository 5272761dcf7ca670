# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Objects of another purpose that have the names of children: obstacles of TrainJobs, except keys, which are used."""

from __future__ import annotations

from typing import Any

from controller_runtime.apis.core.v1 import ConfigMap, Secret
from controller_runtime.apis.machinery.object import Object

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.schedulerplugins.v1alpha1 import PodGroup

Document = dict[str, Any]
_CONTAINER: Document = {"name": "c", "image": "x"}
_JOBS = [{"name": "other", "template": {"spec": {"template": {"spec": {"containers": [_CONTAINER]}}}}}]
FOREIGN: dict[type[Object], tuple[str, Document]] = {
    JobSet: ("", {"spec": {"replicatedJobs": _JOBS, "suspend": True}}),
    PodGroup: ("", {"spec": {"minMember": 1}}),
    ConfigMap: ("-mpi-hostfile", {"data": {"hostfile": "other"}}),
    Secret: ("-mpi-ssh-auth", {"data": {"other": "eA=="}}),
}
"""By kind, the suffix and the content of objects of another purpose that have the name of a child."""
PURPOSE = "example.com/purpose"
"""The label of these objects."""
