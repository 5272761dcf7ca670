# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The kinds of Trainer and of the projects that it uses, as structs."""

from .scheme import default_scheme as default_scheme
