# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Kubernetes kinds as structs, with the names of Go's: a package for each API group, and a module for each version."""

from .scheme import default_scheme as default_scheme
