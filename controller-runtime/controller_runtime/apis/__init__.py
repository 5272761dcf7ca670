# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Kubernetes kinds as pydantic models, and the parts of apimachinery that they need."""
