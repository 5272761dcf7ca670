# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Traces of a TrainJob's objects and of a pod's group: each step, and the cause of each value."""
