# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Objects for tests that set only the fields of interest."""

from .builders import make_cluster_training_runtime as make_cluster_training_runtime
from .builders import make_ended_status as make_ended_status
from .builders import make_job_set as make_job_set
from .builders import make_replicated_job as make_replicated_job
from .builders import make_train_job as make_train_job
from .builders import make_training_runtime as make_training_runtime
from .builders import make_training_runtime_spec as make_training_runtime_spec
