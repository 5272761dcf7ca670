# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The causes by theme. The ``find`` function of a module yields the findings of its theme in a snapshot."""
