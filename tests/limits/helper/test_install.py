"""The units, and what puts them in place."""

import configparser
import os
import shlex
import subprocess
import sys

import pytest

from autocap.cli import main
from autocap.errors import UsageError
from autocap.limits.helper import install
from autocap.limits.helper.install import SERVICE, SOCKET, CannotInstall, Step


def unit(name: str) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # systemd's keys have capitals
    parser.read_string(install.unit_texts("lenders", "/opt/autocap/bin/python3")[name])
    return parser


def test_the_units_say_who_may_connect_and_what_is_run():
    assert unit(SOCKET)["Socket"]["SocketGroup"] == "lenders"
    assert unit(SOCKET)["Socket"]["SocketMode"] == "0660"
    assert unit(SOCKET)["Socket"]["ListenStream"] == "/run/autocap/helper.sock"
    assert unit(SERVICE)["Service"]["ExecStart"] == '"/opt/autocap/bin/python3" -I -m autocap helper serve'


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("KillMode", "process"),  # or its watchdogs would die with it
        ("RuntimeDirectoryPreserve", "yes"),  # or the journal would
        ("CapabilityBoundingSet", "CAP_SYS_ADMIN CAP_SYS_PTRACE"),
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("ProtectHome", "yes"),
        ("PrivateTmp", "yes"),
        ("PrivateNetwork", "yes"),
        ("RestrictAddressFamilies", "AF_UNIX"),
        ("DevicePolicy", "closed"),
    ],
)
def test_the_service_is_confined(key, value):
    assert unit(SERVICE)["Service"][key] == value


def test_the_service_is_started_again_also_when_it_fails_quickly():
    begin, limit = unit(SERVICE)["Service"], unit(SERVICE)["Unit"]
    assert (begin["Restart"], begin["RestartSec"]) == ("on-failure", "100ms")
    assert int(limit["StartLimitBurst"]) / int(limit["StartLimitIntervalSec"]) == 5  # a start takes a fifth of a second


@pytest.fixture
def rooted(monkeypatch, tmp_path):
    """A machine whose autocap is root's, with systemd."""
    monkeypatch.setattr(install, "writable", lambda place: None)
    monkeypatch.setattr(install, "package_root", lambda: str(tmp_path))
    monkeypatch.setattr(install, "_HIDDEN", ())
    monkeypatch.setattr(install.shutil, "which", lambda name: f"/usr/bin/{name}")
    return tmp_path


def steps(tmp_path, group: str = "no-such-group") -> list[Step]:
    return install.install_steps(group, units=tmp_path, systemd=tmp_path, python=sys.executable)


def test_installing_makes_the_group_writes_the_units_and_starts_the_socket(rooted):
    assert [step.said for step in steps(rooted)] == [
        "run groupadd --system no-such-group",
        f"write {rooted}/{SOCKET}",
        f"write {rooted}/{SERVICE}",
        "run systemctl daemon-reload",
        f"run systemctl enable --now {SOCKET}",
        f"run systemctl try-restart {SERVICE}",
    ]


def test_a_socket_that_was_another_groups_is_made_anew(rooted):
    (rooted / SOCKET).write_text(install.unit_texts("some-group")[SOCKET])
    assert [step.said for step in steps(rooted)][3:] == [
        "run systemctl daemon-reload",
        f"run systemctl stop {SERVICE}",
        f"run systemctl stop {SOCKET}",
        f"run systemctl enable --now {SOCKET}",
        f"run systemctl try-restart {SERVICE}",
    ]
    (rooted / SOCKET).write_text(install.unit_texts("no-such-group")[SOCKET])
    assert f"run systemctl stop {SOCKET}" not in [step.said for step in steps(rooted)]


@pytest.mark.parametrize("group", ["root", "sudo", "wheel", "docker", "disk"])
def test_a_group_whose_members_may_do_more_is_not_the_helpers(rooted, group):
    with pytest.raises(CannotInstall, match=f"the group {group} may do more than set power limits.*as gpupower"):
        steps(rooted, group)


def test_a_dry_run_only_says_it(rooted):
    said: list[str] = []
    install.carry_out(steps(rooted), said.append, dry_run=True)
    assert said[1] == f"would write {rooted}/{SOCKET}"
    assert os.listdir(rooted) == []


def test_what_is_written_is_what_uninstalling_removes(rooted):
    writing = [step for step in steps(rooted) if step.said.startswith("write")]
    install.carry_out(writing, lambda line: None, dry_run=False)
    assert (rooted / SERVICE).read_text() == install.unit_texts("no-such-group")[SERVICE]
    assert (rooted / SERVICE).stat().st_mode & 0o777 == 0o644
    removing = install.uninstall_steps(units=rooted)
    assert [step.said for step in removing] == [
        f"run systemctl disable --now {SOCKET}",
        f"run systemctl stop {SERVICE}",
        f"remove {rooted}/{SOCKET}",
        f"remove {rooted}/{SERVICE}",
        "run systemctl daemon-reload",
    ]
    install.carry_out([step for step in removing if step.said.startswith("remove")], lambda line: None, dry_run=False)
    assert install.uninstall_steps(units=rooted) == []


def test_a_step_that_fails_ends_it_and_says_so():
    failing = Step(said="run false", act=lambda: subprocess.run(["false"], check=True))
    with pytest.raises(CannotInstall, match=r"could not run false: .*; what was done before it stays"):
        install.carry_out([failing], lambda line: None, dry_run=False)


def test_code_that_others_can_write_is_not_run_as_root(rooted, monkeypatch):
    monkeypatch.setattr(install, "writable", lambda place: f"user 1000 can write {place}")
    with pytest.raises(CannotInstall, match=r"user 1000 can write .*, who would be root with it; have root install"):
        steps(rooted)


def test_nor_a_package_with_a_file_that_others_can_write(rooted):
    (rooted / "autocap").mkdir()
    (rooted / "autocap" / "a.py").write_text("")
    (rooted / "autocap" / "a.py").chmod(0o666)
    with pytest.raises(CannotInstall, match="can be written by others than root"):
        steps(rooted)


def test_nor_one_in_a_home_which_the_service_does_not_see(rooted, monkeypatch):
    monkeypatch.setattr(install, "_HIDDEN", (os.path.dirname(os.path.realpath(sys.executable)),))
    with pytest.raises(CannotInstall, match="is in a home, which a service does not see"):
        steps(rooted)


@pytest.mark.parametrize("group", ["", "a b", "-x", "Ä", "a\nExecStart=/bin/sh", "x" * 40])
def test_a_group_has_a_groups_name(rooted, group):
    with pytest.raises(CannotInstall, match="is no name of a group"):
        steps(rooted, group)


@pytest.mark.parametrize("name", ['a"b', "a%b", "a$b", "a\\b", "a\nExecStartPre=/bin/sh"])
def test_an_interpreter_whose_path_systemd_would_read_otherwise_is_refused(rooted, name):
    with pytest.raises(CannotInstall, match="has what means something to systemd"):
        install.install_steps("lenders", units=rooted, systemd=rooted, python=f"/opt/{name}/bin/python3")


def test_without_systemd_it_says_what_to_run_instead(rooted):
    with pytest.raises(CannotInstall, match="`autocap helper serve --group lenders` as root"):
        install.install_steps("lenders", units=rooted, systemd=rooted / "none")


@pytest.mark.parametrize(
    "words",
    [
        "status --policy x",
        "serve --json",
        "install --socket x",
        "serve --dry-run",
        "uninstall --group x",
        "serve --group no-such-group",
        "lend",
        "",
    ],
)
def test_options_that_an_action_does_not_have_are_usage_errors(words, monkeypatch, capsys):
    monkeypatch.delenv("AUTOCAP_OBSERVE", raising=False)
    assert main(["helper", *shlex.split(words)]) == UsageError.exit_status
    assert capsys.readouterr().err.startswith("autocap: ")


def test_nothing_is_served_where_nothing_may_be_set(monkeypatch, capsys):
    monkeypatch.setenv("AUTOCAP_OBSERVE", "1")
    assert main(["helper", "serve"]) == UsageError.exit_status
    assert "AUTOCAP_OBSERVE is set" in capsys.readouterr().err


def test_the_status_of_no_helper_says_how_to_have_one(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("AUTOCAP_HELPER", str(tmp_path / "none.sock"))
    assert main(["helper", "status"]) == 1
    assert "helper install" in capsys.readouterr().err
