# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The config.trainer.kubeflow.org group: no kind of a cluster, a file beside the manager."""
