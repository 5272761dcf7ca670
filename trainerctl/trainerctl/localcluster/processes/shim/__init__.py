# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The parent of one container's processes: it makes their mounts, writes their log and ends all of them.

It uses the standard library only and runs without site-packages.
"""

from typing import Final

IDENTITY: Final = "CONTAINER_ID"
"""The environment variable that identifies one run of a container."""
END_FILE: Final = "end.json"
"""The file with the exit code and times of a run, in the folder of the log. A kubelet that did not see the run end
reads it.
"""
