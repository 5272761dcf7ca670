# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The slice of apimachinery that every kind and every client needs; import its modules by name."""
