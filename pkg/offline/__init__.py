# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What the manager and an API server with Trainer's CRDs do with the objects in files, without running either."""
