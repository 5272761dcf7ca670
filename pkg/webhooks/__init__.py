# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The validating webhooks, and the mutating webhook of TrainJobs."""

from . import mirror as mirror
from . import v23rules as v23rules
from .clustertrainingruntime_webhook import ClusterTrainingRuntimeWebhook as ClusterTrainingRuntimeWebhook
from .setup import setup as setup
from .setup import validators as validators
from .trainingruntime_webhook import TrainingRuntimeWebhook as TrainingRuntimeWebhook
from .trainjob_defaulter import TrainJobDefaulter as TrainJobDefaulter
from .trainjob_webhook import TrainJobWebhook as TrainJobWebhook
