# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Shows how a TrainJob's objects and a pod's group are made: each step, and the cause of each value."""
