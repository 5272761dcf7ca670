# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A test must not fail by chance: by default, Hypothesis tries the same examples in each run."""

from hypothesis import given, settings
from hypothesis import strategies as st


def test_two_runs_try_the_same_examples() -> None:
    def examples() -> list[int]:
        tried: list[int] = []

        @settings(settings.get_profile("fixed"))
        @given(st.integers())
        def run(number: int) -> None:
            tried.append(number)

        run()
        return tried

    assert examples() == examples()
