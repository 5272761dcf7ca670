# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Helpers that more than one test module imports; they are not in the wheels."""
