# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The causes by theme. Each module has a ``find`` function, which looks in a snapshot for causes of one kind and yields
findings.
"""
