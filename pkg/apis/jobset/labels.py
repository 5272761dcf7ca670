# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The labels that JobSet sets on Jobs and their pods. They are here, because the models of the API are slow to load."""

from __future__ import annotations

from typing import Final

JOB_SET_NAME_KEY: Final = "jobset.sigs.k8s.io/jobset-name"
JOB_SET_UID_KEY: Final = "jobset.sigs.k8s.io/jobset-uid"
REPLICATED_JOB_NAME_KEY: Final = "jobset.sigs.k8s.io/replicatedjob-name"
JOB_INDEX_KEY: Final = "jobset.sigs.k8s.io/job-index"
RESTARTS_KEY: Final = "jobset.sigs.k8s.io/restart-attempt"
