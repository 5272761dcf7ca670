# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Workloads of which some roles name another scheduler, such as an MPI launcher for the default scheduler.

Upstream counts the pods of these roles, but gives them no group, so that the gang never starts.
"""

from __future__ import annotations

from collections.abc import Mapping

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import JSON

from . import fields
from .errors import AccessorError


def bound_elsewhere(pod: Pod, roles: Mapping[str, JSON], *template: str) -> set[str]:
    """Return the names of the roles whose pods another scheduler than that of ``pod`` binds.

    ``roles`` has the spec of each role, in which ``template`` is the path to the pod template. If no template names the
    scheduler of ``pod``, an admission webhook has set it, and the set is empty.
    """
    ours, named = pod.spec.scheduler_name, {}
    for role, spec in roles.items():
        try:
            named[role] = fields.nested_field({"role": spec}, "role", *template, "spec", "schedulerName")
        except AccessorError:
            named[role] = None
    if not ours or ours not in named.values():
        return set()
    return {role for role, scheduler in named.items() if scheduler != ours}
