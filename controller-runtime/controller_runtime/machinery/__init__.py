# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The parts of apimachinery that kinds and clients need; import its modules by name."""
