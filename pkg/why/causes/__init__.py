# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The causes by theme; each module's ``find`` returns its findings in a snapshot."""
