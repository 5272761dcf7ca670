# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Generators of files in the repository: manifests, roles, the reference, the picture of the demo. Not in the wheel."""
