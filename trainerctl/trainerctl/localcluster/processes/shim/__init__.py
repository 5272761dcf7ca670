# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The parent of one container's processes: it makes their mounts, writes their log and ends all of them.

It uses the standard library only and runs without site-packages.
"""
