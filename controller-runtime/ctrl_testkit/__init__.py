# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Helpers of the library's tests and of those of programs in this repository; no wheel has them."""
