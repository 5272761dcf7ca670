# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The config.trainer.kubeflow.org group: its kind is a file that the manager reads, not an object in a cluster."""
