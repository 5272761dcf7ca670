# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' gangs: the kinds of scheduling.k8s.io in the versions of Kubernetes 1.35 (alpha), 1.36 and 1.37."""
