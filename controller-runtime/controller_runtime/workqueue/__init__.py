# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Work queues: deduplicated, delayed, rate limited and ordered by priority. Independent of Kubernetes."""

from .priorityqueue import LOW_PRIORITY as LOW_PRIORITY
from .priorityqueue import Adder as Adder
from .priorityqueue import PriorityQueue as PriorityQueue
from .priorityqueue import QueueShutDownError as QueueShutDownError
from .priorityqueue import Triggers as Triggers
from .priorityqueue import WithDefaultPriority as WithDefaultPriority
from .priorityqueue import WithTrigger as WithTrigger
from .ratelimiters import BucketRateLimiter as BucketRateLimiter
from .ratelimiters import ItemExponentialFailureRateLimiter as ItemExponentialFailureRateLimiter
from .ratelimiters import ItemFastSlowRateLimiter as ItemFastSlowRateLimiter
from .ratelimiters import MaxOfRateLimiter as MaxOfRateLimiter
from .ratelimiters import RateLimiter as RateLimiter
from .ratelimiters import WithMaxWaitRateLimiter as WithMaxWaitRateLimiter
from .ratelimiters import default_controller_rate_limiter as default_controller_rate_limiter
