# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""JobSet's structs are encoded as Go encodes those of jobset v0.10.1."""

import json
from pathlib import Path

from controller_runtime.machinery.gojson import go_json

from pkg.apis.jobset.v1alpha2 import JobSetSpec


def test_structs_are_written_as_go_writes_them() -> None:
    recorded = json.loads((Path(__file__).parent / "testdata" / "jobset_go.json").read_text())
    assert len(recorded) == 9
    for data, want in recorded:
        assert go_json(JobSetSpec.from_dict(data)) == want
