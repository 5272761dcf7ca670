# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import controller_runtime as ctrl
import pytest
from controller_runtime import rest
from controller_runtime.apis.core.v1 import Pod, Secret
from controller_runtime.healthz import NotHealthyError
from controller_runtime.log import captured
from controller_runtime.machinery.errors import ForbiddenError

from pkg import config
from pkg.apis.config.v1alpha1 import Configuration
from pkg.app import flags, main, process, program


def test_version_and_help_are_answers_not_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert main(["--help"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("trainer-controller-manager ")
    assert "--controllers" in said.out
    assert said.err == ""


def test_a_bad_flag_is_one_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--nope"]) == 2
    assert capsys.readouterr().err == "trainer-controller-manager: flag provided but not defined: -nope\n"


def test_an_error_within_groups_is_expected_only_if_all_in_them_are() -> None:
    refused, bug = ForbiddenError("no"), TypeError("bug")
    nested = ExceptionGroup("a", [ExceptionGroup("b", [refused])])
    assert process.expected(nested) is refused
    assert process.expected(ExceptionGroup("a", [refused, bug])) is None
    assert process.expected(bug) is None


@pytest.mark.parametrize(
    ("enable", "arguments", "runs"),
    [
        (False, [], False),
        (True, [], True),
        (False, ["--controllers=podgrouper"], True),
        (False, ["--controllers=*,podgrouper"], True),
        (True, ["--controllers=*,-podgrouper"], False),
        (True, ["--controllers=trainjob"], False),
        (True, ["--controllers="], False),
    ],
)
def test_the_pod_grouper_runs_where_it_is_named_and_not_excluded(
    enable: bool, arguments: list[str], runs: bool
) -> None:
    cfg = config.load("")
    cfg.pod_grouper.enable = enable
    parsed = flags.parse(arguments)

    assert program.groups_pods(parsed, cfg) is runs
    assert (Pod in program.options(parsed, cfg).cache.by_object) is runs


async def managed_by(parsed: flags.Flags, cfg: Configuration) -> ctrl.Manager:
    """Return a manager that is set up but not started."""
    mgr = ctrl.Manager(
        rest.Config("http://127.0.0.1:1"),
        program.options(parsed, cfg),
        transport=rest.FakeTransport(lambda _request: rest.FakeResponse(404)),
    )
    await program.setup(mgr, parsed, cfg)
    return mgr


async def test_alone_it_has_no_webhooks_and_watches_nothing_of_trainer() -> None:
    cfg = config.load("")
    cfg.metrics.bind_address = cfg.health.health_probe_bind_address = "0"
    parsed = flags.parse(["--controllers=podgrouper"])

    mgr = await managed_by(parsed, cfg)

    assert mgr.controller_names == {"pod"}
    assert mgr._webhook_server is None


@pytest.mark.parametrize("managed", [True, False])
async def test_a_manager_is_not_ready_before_it_serves_webhooks(managed: bool) -> None:
    cfg = config.load("")
    cfg.metrics.bind_address = cfg.health.health_probe_bind_address = "0"
    cfg.cert_management.enable = managed

    mgr = await managed_by(flags.parse([]), cfg)

    with pytest.raises(NotHealthyError):
        mgr._readyz["readyz"]()


@pytest.mark.parametrize("managed", [True, False])
async def test_without_webhooks_the_controllers_run_and_nothing_is_served_or_certified(managed: bool) -> None:
    cfg = config.load("")
    cfg.metrics.bind_address = cfg.health.health_probe_bind_address = "0"
    cfg.cert_management.enable = managed
    parsed = flags.parse(["--webhooks=false"])

    mgr = await managed_by(parsed, cfg)

    assert len(mgr.controller_names) == 3
    assert mgr._webhook_server is None
    assert "readyz" not in mgr._readyz


@pytest.mark.parametrize(
    ("gates", "arguments", "serves"),
    [
        ({}, [], False),
        ({"TrainJobStatus": True}, [], True),
        ({}, ["--feature-gates=TrainJobStatus=true"], True),
        ({"TrainJobStatus": True}, ["--feature-gates=TrainJobStatus=false"], False),
        ({"TrainJobStatus": True}, ["--webhooks=false"], False),
        ({"TrainJobStatus": True}, ["--controllers="], True),
    ],
)
async def test_status_updates_are_served_with_their_feature_gate_in_every_replica(
    gates: dict[str, bool], arguments: list[str], serves: bool
) -> None:
    cfg = config.load("")
    cfg.metrics.bind_address = cfg.health.health_probe_bind_address = "0"
    cfg.feature_gates = gates
    parsed = flags.parse(arguments)

    mgr = await managed_by(parsed, cfg)

    assert ("status-server" in mgr._readyz) is serves
    if serves:
        with pytest.raises(NotHealthyError, match="has not been started yet"):
            mgr._readyz["status-server"]()
    assert list(mgr._healthz) == ["healthz"]
    enabled = program.reports_status(parsed, cfg)
    assert (Secret in program.options(parsed, cfg).cache.by_object) is enabled


@pytest.mark.parametrize(
    ("version", "gates", "texts"),
    [
        (
            "2.1",
            {},
            ["ttlSecondsAfterFinished of the Configuration has no effect: its feature gate is disabled"],
        ),
        ("2.3", {"MutableNumNodes": True, "TTLAfterFinished": True}, []),
        (
            "2.1",
            {"MutableNumNodes": True, "AllAlpha": True},
            ["The feature gate has no effect: this compatibilityVersion permits these changes"],
        ),
        ("2.1", {"AllAlpha": True}, []),
    ],
)
async def test_settings_that_need_another_setting_to_have_an_effect_are_logged(
    version: str, gates: dict[str, bool], texts: list[str]
) -> None:
    cfg = config.load("")
    cfg.metrics.bind_address = cfg.health.health_probe_bind_address = "0"
    cfg.ttl_seconds_after_finished, cfg.compatibility_version = 60, version

    with captured() as lines:
        await managed_by(flags.parse([f"--feature-gates={','.join(f'{each}=true' for each in gates)}"]), cfg)

    assert [each["event"] for each in lines if "has no effect" in each["event"]] == texts


@pytest.mark.parametrize("gates", [{"TrainJobStatus": True}, {}], ids=["gate", "no gate"])
async def test_the_preview_of_v2_4_adds_the_status_server_to_both_probes_by_the_names_of_trainer(
    gates: dict[str, bool],
) -> None:
    cfg = config.load("")
    cfg.metrics.bind_address = cfg.health.health_probe_bind_address = "0"
    cfg.compatibility_version, cfg.feature_gates = "2.4", gates

    mgr = await managed_by(flags.parse([]), cfg)

    live, ready = set(mgr._healthz) - {"healthz"}, {each for each in mgr._readyz if "status" in each}
    assert live == ({"status-server-healthz"} if gates else set())
    assert ready == ({"status-server-readyz"} if gates else set())
    if gates:
        mgr._healthz["status-server-healthz"]()  # a restart does not bring a certificate
        with pytest.raises(NotHealthyError, match="has not been started yet"):
            mgr._readyz["status-server-readyz"]()


@pytest.mark.parametrize(
    ("gates", "arguments", "watches"),
    [
        ({}, [], False),
        ({"FailureEvidence": True}, [], True),
        ({}, ["--feature-gates=AllAlpha=true"], True),
        ({"FailureEvidence": True}, ["--feature-gates=FailureEvidence=false"], False),
        ({"FailureEvidence": True}, ["--controllers=*,-trainjob"], False),
    ],
)
async def test_failed_pods_are_watched_with_their_feature_gate_beside_the_trainjob_controller(
    gates: dict[str, bool], arguments: list[str], watches: bool
) -> None:
    cfg = config.load("")
    cfg.metrics.bind_address = cfg.health.health_probe_bind_address = "0"
    cfg.feature_gates = gates

    mgr = await managed_by(flags.parse(arguments), cfg)

    assert ("failure-evidence" in mgr._readyz) is watches
