# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The Flux plugin."""

from .flux import NAME as NAME
from .flux import Flux as Flux
from .flux import new as new
