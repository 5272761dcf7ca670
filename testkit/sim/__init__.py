# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The simulated cluster: users, administrators, the other controllers, and the rules that the manager must keep."""
