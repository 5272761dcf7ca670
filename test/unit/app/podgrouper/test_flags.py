# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The command lines of KAI-Scheduler's operator have the same meaning as in KAI-Scheduler."""

import pytest
from controller_runtime import rest
from controller_runtime.log import Encoder, TimeEncoding
from controller_runtime.machinery import NamespacedName

from pkg import config, podgrouper
from pkg.app import goflags
from pkg.app.podgrouper import flags, main, program
from pkg.podgrouper import Rules

OPERATORS = [
    *("--scheduler-name", "mine", "--queue-label-key", "queue", "--nodepool-label-key", "pool"),
    "--knative-gang-schedule=false",
    *("--qps", "20", "--burst", "200", "--max-concurrent-reconciles", "3", "--leader-elect"),
    *("--default-priorities-configmap-name", "defaults", "--default-priorities-configmap-namespace", "kai"),
    *("--namespace-label-selector", "a=b, c = d", "--pod-label-selector", "e=f,nonsense"),
]


def test_what_is_not_given_is_upstreams_default() -> None:
    parsed = flags.parse([])
    made = program.options(parsed.configuration)

    assert podgrouper.Settings.of(parsed.configuration) == podgrouper.Settings()
    assert (made.metrics_bind_address, made.metrics_secure, made.metrics_filter) == (":8080", False, None)
    assert made.health_probe_bind_address == ":8081"
    assert (made.leader_election, made.leader_election_id) == (False, "54dff599.kai.scheduler")
    assert (made.lease_duration, made.renew_deadline, made.retry_period) == (15, 10, 2)
    client = parsed.configuration.client_connection
    assert (client.qps, client.burst) == (50, 300)
    assert (parsed.log.effective_encoder, parsed.log.time_encoding) == (Encoder.CONSOLE, TimeEncoding.ISO8601)


def test_every_flag_of_the_operator_counts() -> None:
    parsed = flags.parse(OPERATORS)
    settings = podgrouper.Settings.of(parsed.configuration)

    assert settings == podgrouper.Settings(
        scheduler_name="mine",
        queue_label_key="queue",
        node_pool_label_key="pool",
        namespace_labels={"a": "b", "c": "d"},
        pod_labels={"e": "f"},
        max_concurrent_reconciles=3,
        knative_gang_schedule=False,
        default_priorities=NamespacedName("kai", "defaults"),
    )
    client = parsed.configuration.client_connection
    assert (client.qps, client.burst) == (20, 200)
    assert program.options(parsed.configuration).leader_election


@pytest.mark.parametrize(
    ("arguments", "address"),
    [([], ":8080"), (["--metrics-bind-address=0"], "0"), (["--metrics-bind-address="], ":8080")],
)
def test_metrics_are_served_where_controller_runtime_serves_them(arguments: list[str], address: str) -> None:
    assert program.options(flags.parse(arguments).configuration).metrics_bind_address == address


@pytest.mark.parametrize("text", ["", "0"])
def test_probes_can_be_turned_off(text: str) -> None:
    made = program.options(flags.parse([f"--health-probe-bind-address={text}"]).configuration)
    assert made.health_probe_bind_address == "0"


def test_a_label_key_that_is_set_to_nothing_stays_so() -> None:
    settings = podgrouper.Settings.of(
        flags.parse(["--nodepool-label-key=", "--queue-label-key="]).configuration
    )
    assert (settings.node_pool_label_key, settings.queue_label_key) == ("", "")


@pytest.mark.parametrize("half", ["name", "namespace"])
def test_half_a_config_map_is_none(half: str) -> None:
    parsed = flags.parse([f"--default-priorities-configmap-{half}=x"])
    assert podgrouper.Settings.of(parsed.configuration).default_priorities is None


@pytest.mark.parametrize(
    ("text", "expected"), [("7", 7), ("0x10", 16), ("010", 8), ("1_000", 1000), ("+3", 3)]
)
def test_integers_are_gos(text: str, expected: int) -> None:
    assert flags.parse([f"--burst={text}"]).configuration.client_connection.burst == expected


@pytest.mark.parametrize("text", ["", "seven", "1.5", "2147483648", "9" * 5000, "08"])
def test_what_is_not_an_integer_is_an_error(text: str) -> None:
    with pytest.raises(goflags.FlagError, match="flag -burst"):
        flags.parse([f"--burst={text}"])


@pytest.mark.parametrize(
    ("flag", "expected"), [("qps=0", (5, 300)), ("burst=0", (50, 10)), ("qps=-1", (-1, 300))]
)
def test_a_limit_of_zero_is_client_gos_default(flag: str, expected: tuple[float, int]) -> None:
    parsed = flags.parse([f"--{flag}"]).configuration
    connection = config.rest_config(parsed, rest.Config(host="https://h"))
    assert (connection.qps, connection.burst) == expected


def test_no_reconciles_at_a_time_are_one() -> None:
    parsed = flags.parse(["--max-concurrent-reconciles=0"])
    assert podgrouper.Settings.of(parsed.configuration).max_concurrent_reconciles == 1


@pytest.mark.parametrize(
    ("flag", "rules"),
    [("--rules=auto", None), ("--rules=v0.17", Rules.V0_17), ("--generic-karta-fallback=false", None)],
)
def test_the_rules_are_a_flag_and_the_flag_of_v0_17_is_accepted(flag: str, rules: Rules | None) -> None:
    assert podgrouper.Settings.of(flags.parse([flag]).configuration).rules is rules


def test_unknown_rules_are_refused() -> None:
    with pytest.raises(goflags.FlagError, match=r"must be auto, v0\.13 or v0\.17"):
        flags.parse(["--rules=v0.14"])


def test_the_configuration_of_any_flags_is_valid() -> None:
    for arguments in ([], OPERATORS):
        assert config.validation.validate(flags.parse(arguments).configuration) == []


def test_help_and_version_are_answers_and_a_bad_flag_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert (main(["--help"]), main(["--version"]), main(["--config=x"])) == (0, 0, 2)
    said = capsys.readouterr()
    assert said.out.startswith("Usage of podgrouper:\n")
    assert "(default 300)" in said.out
    assert said.err == "podgrouper: flag provided but not defined: -config\n"
