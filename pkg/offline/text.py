# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Text from files and servers made safe to print."""

from controller_runtime.log import printable as printable
from controller_runtime.log import printable_json as printable_json
from controller_runtime.log import printable_line as printable_line
