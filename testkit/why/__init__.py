# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""States of TrainJobs for the tests of ``why``: in memory, and of a real cluster."""
