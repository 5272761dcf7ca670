# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Kubeflow's workloads: training operators' jobs with replica specs."""
