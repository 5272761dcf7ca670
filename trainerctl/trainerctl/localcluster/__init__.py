# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The local cluster: a real control plane, JobSet, simulated GPU nodes and our manager, without containers."""
