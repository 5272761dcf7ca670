# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The parent of one container's processes: it makes their mounts, writes their log and ends all of them.

It uses the standard library only and runs without site-packages.
"""

from typing import Final

IDENTITY: Final = "CONTAINER_ID"
"""The variable with the name of one start of a container."""
END_FILE: Final = "end.json"
"""The end of a container beside its log, for a kubelet that starts after the one that could not report it."""
