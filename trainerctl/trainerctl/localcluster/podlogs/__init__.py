# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The logs of simulated pods: the part of a kubelet that the API server calls for them.

Each line is computed from the pod; nothing is stored. The first line states that the log is simulated.
"""
