# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The programs' commands: flags in, exit code out; `cmd/` only calls them."""
