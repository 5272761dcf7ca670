# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""KAI-Scheduler's kinds: the PodGroup of a gang and the Queue."""
