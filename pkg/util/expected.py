# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""ExpectedError: the base of errors whose text is enough for the user."""

from controller_runtime.machinery.raised import ExpectedError as ExpectedError
