# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Profiles of the running process over HTTP: stacks, a sampling profile, and the memory that tracemalloc knows of.

A manager serves them with ``Options(pprof_bind_address="127.0.0.1:6060")``. There is no authorization:
bind to loopback.
"""

from .handlers import PREFIX as PREFIX
from .handlers import routes as routes
from .sampler import Profile as Profile
from .sampler import sample as sample
from .stacks import describe as describe
