# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A kubelet in miniature: pods of nodes labelled ``type: process`` run their containers' commands as local processes.

There are no images and no isolation. A container's process runs as the user who started the cluster.
"""
