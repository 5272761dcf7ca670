# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Groupers: one for each kind of workload that the default grouper does not serve."""

from .errors import AccessorError as AccessorError
from .errors import GroupingError as GroupingError
from .errors import InvalidOwnerError as InvalidOwnerError
from .grouper import Grouper as Grouper
from .grouper import Inputs as Inputs
from .grouper import Key as Key
from .grouper import Reads as Reads
from .grouper import inputs as inputs
