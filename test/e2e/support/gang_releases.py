# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The releases of the cluster on which Kubernetes' own gangs are tried.

``CLUSTER_KUBERNETES`` and ``CLUSTER_JOBSET`` choose them.
"""

import os

import pytest
from controller_runtime.apis.machinery.object import Object

from pkg.apis.scheduling import v1alpha1, v1alpha2, v1beta1

KUBERNETES = os.environ.get("CLUSTER_KUBERNETES", "1.35")
JOBSET = os.environ.get("CLUSTER_JOBSET", "0.11" if KUBERNETES == "1.35" else "0.12")
GANGS: dict[tuple[str, str], type[Object]] = {
    ("1.35", "0.11"): v1alpha1.Workload,
    ("1.35", "0.12"): v1alpha1.Workload,
    ("1.36", "0.12"): v1alpha2.PodGroup,
    ("1.37", "0.12"): v1beta1.PodGroup,
}
"""The kind of gangs on each pair of Kubernetes and a JobSet whose CRD keeps the field of the pods."""


def gang_kind() -> type[Object]:
    """Return the kind of gangs; without one there is nothing to try, and the calling module is skipped."""
    if (KUBERNETES, JOBSET) not in GANGS:
        reason = f"Kubernetes {KUBERNETES} with JobSet {JOBSET} cannot schedule gangs"
        pytest.skip(reason, allow_module_level=True)
    return GANGS[KUBERNETES, JOBSET]
