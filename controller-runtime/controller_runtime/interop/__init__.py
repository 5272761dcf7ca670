# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The library beside other clients of Kubernetes. Each module needs the package that it is named after.

This package imports none of them, and no other package of the library imports this one.
"""
