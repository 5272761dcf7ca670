# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import pytest

from pkg.app import flags, goflags


@pytest.mark.parametrize(
    "line", [["--config=a.yaml"], ["-config=a.yaml"], ["--config", "a.yaml"], ["-config", "a.yaml"]]
)
def test_a_flag_takes_one_dash_or_two_and_its_value_either_way(line: list[str]) -> None:
    assert flags.parse(line).config == "a.yaml"


def test_nothing_given_means_the_defaults() -> None:
    parsed = flags.parse([])
    assert parsed == flags.Flags()
    assert all(parsed.enabled(name) for name in flags.CONTROLLERS)


def test_the_shipped_arguments_are_understood() -> None:
    parsed = flags.parse(["--config=/controller_manager_config.yaml", "--zap-log-level=2"])
    assert (parsed.config, parsed.log.verbosity) == ("/controller_manager_config.yaml", 2)


def test_a_value_may_hold_an_equals_sign_and_be_empty() -> None:
    assert flags.parse(["--kubeconfig=a=b"]).kubeconfig == "a=b"
    assert flags.parse(["--kubeconfig="]).kubeconfig == ""


def test_the_last_of_a_repeated_flag_counts() -> None:
    assert flags.parse(["--config=a", "--config=b", "--"]).config == "b"


def test_a_boolean_does_not_eat_the_next_word() -> None:
    parsed = flags.parse(["--zap-devel", "--config", "a"])
    assert parsed.log.development
    assert parsed.config == "a"
    assert not flags.parse(["--zap-devel=f"]).log.development


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["--nope"], "flag provided but not defined: -nope"),
        (["-nope=1"], "flag provided but not defined: -nope"),
        (["--config"], "flag needs an argument: -config"),
        (["--zap-devel=maybe"], 'invalid boolean value "maybe" for flag -zap-devel: parse error'),
        (["---config=a"], "bad flag syntax: ---config=a"),
        (["--=a"], "bad flag syntax: --=a"),
        (["config.yaml"], "unexpected argument: config.yaml"),
        (["--enable-http2", "true"], "unexpected argument: true"),
        (["--", "x"], "unexpected argument: x"),
        (["-"], "unexpected argument: -"),
        (["--zap-log-level=0"], 'invalid value "0" for flag -zap-log-level: invalid log level "0"'),
        (["--zap-encoder=xml"], 'invalid value "xml" for flag -zap-encoder: invalid encoder value "xml"'),
        (["--feature-gates=A"], 'invalid value "A" for flag -feature-gates: missing bool value for "A"'),
        (["--feature-gates=A=2"], 'invalid value "A=2" for flag -feature-gates: "A" must be true or false, not "2"'),
        (["--feature-gates=Nope=true"], 'invalid value "Nope=true" for flag -feature-gates: unrecognized feature gate: Nope; the gates are AllAlpha, AllBeta, ExecutionAttempts, FailureEvidence, MutableNumNodes, TrainJobStatus, TTLAfterFinished'),
        (
            ["--controllers=", "--webhooks=false"],
            "--controllers and --webhooks disable everything",
        ),
        (
            ["--controllers=trainjobs"],
            'invalid value "trainjobs" for flag -controllers: unknown controller "trainjobs"; the controllers are trainjob, trainingruntime, clustertrainingruntime, podgrouper',
        ),
    ],
)  # fmt: skip
def test_a_bad_line_is_one_clear_sentence(line: list[str], message: str) -> None:
    with pytest.raises(goflags.FlagError) as caught:
        flags.parse(line)
    assert str(caught.value) == message


@pytest.mark.parametrize("word", ["-h", "--help", "-help"])
def test_help_is_not_an_error(word: str) -> None:
    with pytest.raises(goflags.HelpRequested):
        flags.parse([word])
    assert all(f"--{flag.name}" in flags.usage() for flag in flags.FLAGS)


@pytest.mark.parametrize(
    ("text", "enabled"),
    [
        ("*", {"trainjob", "trainingruntime", "clustertrainingruntime", "podgrouper"}),
        ("*,-podgrouper", {"trainjob", "trainingruntime", "clustertrainingruntime"}),
        ("-podgrouper,*", {"trainjob", "trainingruntime", "clustertrainingruntime"}),
        ("trainjob", {"trainjob"}),
        ("trainjob, trainingruntime", {"trainjob", "trainingruntime"}),
        ("-trainjob", set()),
        ("", set()),
    ],
)
def test_controllers_are_chosen_as_kube_controller_manager_does(text: str, enabled: set[str]) -> None:
    parsed = flags.parse([f"--controllers={text}"])
    assert {name for name in flags.CONTROLLERS if parsed.enabled(name)} == enabled


def test_webhooks_are_served_unless_the_last_word_is_no() -> None:
    assert flags.parse([]).webhooks
    assert not flags.parse(["--webhooks=false"]).webhooks
    assert flags.parse(["--webhooks=false", "--webhooks"]).webhooks


def test_repeated_lists_add_up() -> None:
    assert flags.parse(["--controllers=*", "--controllers=-trainjob"]).controllers == ("*", "-trainjob")
    gates = ["--feature-gates=AllAlpha=true,TrainJobStatus=false", "--feature-gates=TrainJobStatus=true"]
    assert flags.parse(gates).feature_gates == {"AllAlpha": True, "TrainJobStatus": True}
