# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Generators for the authors of operators: ``python -m controller_runtime crd|rbac|webhook|new``.

A running controller does not need them. ``crd`` generates CustomResourceDefinitions from kinds; ``rbac`` and
``webhook`` generate roles and webhook configurations from the ``+kubebuilder:rbac`` and ``+kubebuilder:webhook``
comments beside the code that needs them; ``new`` writes a project.
"""
