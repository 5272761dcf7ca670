# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The names of this group and version."""

from __future__ import annotations

from typing import Final

GROUP: Final = "trainer.kubeflow.org"
VERSION: Final = "v1alpha1"
GROUP_VERSION: Final = f"{GROUP}/{VERSION}"
