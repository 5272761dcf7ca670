# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Kubernetes kinds as structs, and the parts of apimachinery that they need."""
