# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""KAI-Scheduler's pod grouper: from a pod to its top owner, to the PodGroup that schedules its pods together."""
