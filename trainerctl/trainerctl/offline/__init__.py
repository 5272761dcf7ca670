# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Predicts the results of the manager and of an API server with Trainer's CRDs for objects in files."""
