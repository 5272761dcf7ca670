# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""How a TrainJob becomes its objects and a pod gets its group, step by step, and what each value is due to."""
