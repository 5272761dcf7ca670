# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Helpers for the tests of the library and of the programs in this repository; no wheel contains them."""
