# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What the manager and an API server with our CRDs would make of files, without either of them."""
