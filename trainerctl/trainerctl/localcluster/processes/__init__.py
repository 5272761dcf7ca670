# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A small kubelet. It runs the containers of pods on nodes labelled ``type: process`` as local processes.

There are no images and no isolation. A container's process runs as the user who started the cluster.
"""
