# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The commands of ``trainerctl``: flags in, text and an exit code out."""
