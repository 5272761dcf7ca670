# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Workload: gang-scheduling by Kubernetes itself, with the API of scheduling.k8s.io that the server serves."""

from .served import Published as Published
from .served import Served as Served
from .workload import Workload as Workload
