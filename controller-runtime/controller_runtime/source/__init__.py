# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Sources of events: a watched kind, a channel, a function.

A source runs as a task of its controller and feeds that controller's queue. A kind that the server does not
serve, or denies, does not stop its controller: the source waits for the kind, and other sources continue.
"""

from .pipe import LONGEST_RETRY as LONGEST_RETRY
from .pipe import MAX_RETRIES as MAX_RETRIES
from .pipe import Discovers as Discovers
from .pipe import Informers as Informers
from .pipe import Queue as Queue
from .source import EXPEDITED as EXPEDITED
from .source import Channel as Channel
from .source import Deferred as Deferred
from .source import Expedited as Expedited
from .source import Func as Func
from .source import Kind as Kind
from .source import NeedsWork as NeedsWork
from .source import Source as Source
from .source import SyncingSource as SyncingSource
from .source import When as When
