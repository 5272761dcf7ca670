# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The commands of ``trainerctl``. A command takes flags, prints text and returns an exit code."""
