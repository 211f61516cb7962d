"""Which rule decides, and which files are believed.

What docs/helper.md shows works: its client, its policy, its numbers.
"""

import os
import tomllib
from pathlib import Path

import pytest

from autocap.clock import VirtualClock
from autocap.limits.helper import policy as policy_module
from autocap.limits.helper.policy import Grant, Policy, PolicyFiles, PolicyRefused, plain_address, rules_in
from autocap.limits.helper.protocol import MOST_DEVICES, MOST_REQUEST_BYTES, Code, Op
from autocap.wire.admission import Bounds
from autocap.wire.who import Peer
from tests.docs.pages import ALL_BLOCKS, ROOT
from tests.limits.helper.test_server import Serving

ALICE = Peer(uid=20_001, pid=1, groups=(30_001, 100))
BOB = Peer(uid=20_002, pid=2, groups=(30_002, 100))
GPU0, GPU1 = ("gpu-0000", "0000:3b:00.0"), ("gpu-1111", "0000:5e:00.0")


def policy(*tables: dict[str, object], closed: bool = True) -> Policy:
    return Policy(rules=tuple(rules_in({"version": 1, "rule": list(tables)}, "policy.toml")), closed=closed)


def why_not(found: Grant | str) -> str:
    assert isinstance(found, str)
    return found


def test_without_a_policy_everybody_who_connects_may_have_their_own():
    assert Policy().grant(ALICE, GPU0) == Grant()
    assert Grant().alone


def test_with_a_policy_what_no_rule_allows_is_not_allowed():
    assert "no rule of the policy allows it to user 20002" in why_not(policy({"users": [20_001]}).grant(BOB, GPU0))
    assert "no rule of the policy allows it" in why_not(policy().grant(ALICE, GPU0))


def test_the_first_rule_that_matches_decides():
    both = policy({"users": [20_001], "max_w": 200}, {"max_w": 150, "min_w": 120, "sets_per_s": 0.5})
    mine, theirs = both.grant(ALICE, GPU0), both.grant(BOB, GPU0)
    assert (mine.min_w, mine.max_w, mine.sets_per_s) == (0.0, 200.0, None)
    assert (theirs.min_w, theirs.max_w, theirs.sets_per_s) == (120.0, 150.0, 0.5)


def test_a_rule_is_for_its_users_and_for_all_who_are_in_its_groups():
    either = policy({"users": [20_002], "groups": [30_001]})
    assert isinstance(either.grant(ALICE, GPU0), Grant)
    assert isinstance(either.grant(BOB, GPU0), Grant)
    assert why_not(either.grant(Peer(uid=20_003, pid=3, groups=(100,)), GPU0))


@pytest.mark.parametrize("name", ["GPU-0000", "gpu-0000", "0000:3b:00.0", "00000000:3B:00.0", "3b:00.0"])
def test_a_device_is_named_by_uuid_or_pci_address(name):
    one = policy({"devices": [name]})
    assert isinstance(one.grant(ALICE, GPU0), Grant)
    assert why_not(one.grant(ALICE, GPU1))


def test_pci_addresses_are_compared_as_lspci_writes_them():
    assert plain_address("00010000:3B:00.0") == "0000:3b:00.0"
    assert plain_address("0001:3b:00.0") == "0001:3b:00.0"
    assert plain_address("intel-rapl-0") == "intel-rapl-0"


def test_what_was_given_to_one_is_theirs_whoever_computes_there_and_nobody_elses():
    given = policy({"users": [20_001], "devices": ["gpu-0000"], "given": True}, {})
    mine = given.grant(ALICE, GPU0)
    assert not mine.alone
    assert why_not(given.grant(BOB, GPU0)) == "it was given to user 20001 by policy.toml"
    assert isinstance(given.grant(BOB, GPU1), Grant)


def test_what_is_given_to_two_both_may_have():
    given = policy(
        {"users": [20_001], "devices": ["gpu-0000"], "given": True},
        {"users": [20_002], "devices": ["gpu-0000"], "given": True},
    )
    assert isinstance(given.grant(ALICE, GPU0), Grant)
    assert isinstance(given.grant(BOB, GPU0), Grant)


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({}, "no `version = 1`"),
        ({"version": True}, "no `version = 1`"),
        ({"version": 1, "rules": []}, "'rules' is no key of a policy"),
        ({"version": 1, "rule": {}}, "rule is no list"),
        ({"version": 1, "rule": ["*"]}, "rule is no list"),
        ({"version": 1, "rule": [{}] * 1025}, "at most 1024"),
        ({"version": 1, "rule": [{"user": ["root"]}]}, "'user' is no key of rule 1; there are devices, given"),
        ({"version": 1, "rule": [{}, {"users": []}]}, "users of rule 2 is no list of 1 to 1024 names"),
        ({"version": 1, "rule": [{"users": "root"}]}, "users of rule 1 is no list"),
        ({"version": 1, "rule": [{"users": ["no such user"]}]}, "'no such user' in users of rule 1 is not known here"),
        ({"version": 1, "rule": [{"users": [True]}]}, "True in users of rule 1 is not known here"),
        ({"version": 1, "rule": [{"users": [-1]}]}, "-1 in users"),
        ({"version": 1, "rule": [{"groups": [2**32 - 1]}]}, "4294967295 in groups"),
        ({"version": 1, "rule": [{"devices": [0]}]}, "devices of rule 1 are no UUIDs"),
        ({"version": 1, "rule": [{"min_w": "100"}]}, "min_w of rule 1 is no number above 0"),
        ({"version": 1, "rule": [{"min_w": True}]}, "min_w of rule 1 is no number"),
        ({"version": 1, "rule": [{"max_w": 0}]}, "max_w of rule 1 is no number above 0"),
        ({"version": 1, "rule": [{"max_w": float("nan")}]}, "max_w of rule 1 is no number"),
        ({"version": 1, "rule": [{"max_w": float("inf")}]}, "max_w of rule 1 is no number"),
        ({"version": 1, "rule": [{"sets_per_s": -1}]}, "sets_per_s of rule 1 is no number"),
        ({"version": 1, "rule": [{"min_w": 200, "max_w": 100}]}, "min_w 200 of rule 1 is above its max_w 100"),
        ({"version": 1, "rule": [{"given": 1}]}, "given of rule 1 is neither true nor false"),
        ({"version": 1, "rule": [{"shared": "yes"}]}, "shared of rule 1 is neither true nor false"),
    ],
)
def test_a_policy_is_taken_exactly(document, says):
    with pytest.raises(ValueError, match=says.replace("(", r"\(")):
        rules_in(document, "policy.toml")


@pytest.fixture
def files(tmp_path: Path) -> PolicyFiles:
    return PolicyFiles(tmp_path / "policy.toml", tmp_path / "policy.d", os.geteuid())


def write(path: Path, text: str, mode: int = 0o644) -> Path:
    path.parent.mkdir(exist_ok=True, mode=0o755)
    path.write_text(text)
    path.chmod(mode)
    return path


RULES = "version = 1\n[[rule]]\nusers = [20001]\nmax_w = {}\n"


def max_w(files: PolicyFiles, peer: Peer = ALICE) -> float:
    found = files.current().grant(peer, GPU0)
    assert isinstance(found, Grant), found
    return found.max_w


def test_a_policy_is_read_anew_when_it_has_changed(files, tmp_path):
    write(tmp_path / "policy.toml", RULES.format(200))
    assert max_w(files) == 200.0
    write(tmp_path / "new", RULES.format(150)).rename(tmp_path / "policy.toml")
    assert max_w(files) == 150.0
    assert files.current() is files.current()


def test_drop_ins_come_first_and_go_with_their_file(files, tmp_path):
    write(tmp_path / "policy.toml", RULES.format(200))
    drop_in = write(tmp_path / "policy.d" / "slurm-7.toml", RULES.format(120))
    write(tmp_path / "policy.d" / "slurm-8.toml.new", "no policy, as it is not finished")
    assert max_w(files) == 120.0
    drop_in.unlink()
    assert max_w(files) == 200.0


def test_a_policy_that_was_named_has_to_be_there(files):
    with pytest.raises(PolicyRefused, match=r"there is no policy .*; nothing is lent until there is"):
        files.current()


def test_the_usual_one_need_not_be_there_and_drop_ins_alone_leave_the_rest_open(tmp_path, monkeypatch):
    monkeypatch.setattr(policy_module, "USUAL_POLICY", tmp_path / "none.toml")
    files = PolicyFiles(None, tmp_path / "policy.d", os.geteuid())
    assert files.current().grant(BOB, GPU0) == Grant()
    write(tmp_path / "policy.d" / "a.toml", 'version = 1\n[[rule]]\nusers=[20001]\ngiven=true\ndevices=["gpu-0000"]\n')
    assert why_not(files.current().grant(BOB, GPU0)) == "it was given to user 20001 by a.toml"
    assert files.current().grant(BOB, GPU1) == Grant()


def test_the_usual_one_once_read_has_to_stay(tmp_path, monkeypatch):
    usual = tmp_path / "usual.toml"
    monkeypatch.setattr(policy_module, "USUAL_POLICY", usual)
    files = PolicyFiles(None, tmp_path / "policy.d", os.geteuid())
    write(usual, RULES.format(200))
    assert max_w(files) == 200.0
    usual.rename(tmp_path / "usual.toml~")
    with pytest.raises(PolicyRefused, match=r"there is no policy .*; nothing is lent until there is"):
        files.current()
    (tmp_path / "usual.toml~").rename(usual)
    assert max_w(files) == 200.0


@pytest.mark.parametrize("where", ["policy.toml", "policy.d/a.toml"])
@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda path: path.chmod(0o664), r"others can write it \(mode 0664\)"),
        (lambda path: path.chmod(0o646), r"others can write it \(mode 0646\)"),
        (
            lambda path: (path.rename(path.with_suffix(".was")), path.symlink_to(path.with_suffix(".was"))),
            "cannot be read",
        ),
        (lambda path: (path.unlink(), path.mkdir()), "it is a link, or of another kind"),
        (lambda path: (path.unlink(), os.mkfifo(path, 0o644)), "it is a link, or of another kind"),
        (lambda path: path.write_text("#" * 65537), "longer than 65536 bytes"),
        (lambda path: path.write_bytes(b"\xff"), "is refused: 'utf-8' codec"),
        (lambda path: path.write_text("version = "), "is refused: Invalid value"),
        (lambda path: path.write_text("a = " + "[" * 5000), "is refused"),
    ],
)
def test_a_file_that_is_not_to_be_trusted_or_understood_is_refused(files, tmp_path, where, spoil, says):
    write(tmp_path / "policy.toml", RULES.format(200))
    path = write(tmp_path / where, RULES.format(200))
    assert max_w(files) == 200.0
    spoil(path)
    with pytest.raises(PolicyRefused, match=says):
        files.current()


AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


@pytest.mark.parametrize(
    ("where", "spoil", "says"),
    [
        *(
            pytest.param(where, lambda path: os.chown(path, 20_001, -1), "it belongs to user 20001", marks=AS_ROOT)
            for where in ("policy.toml", "policy.d/a.toml", "policy.d")
        ),
        ("policy.d", lambda path: path.chmod(0o777), "others can write it"),
    ],
)
def test_what_is_another_users_or_can_be_written_by_others_is_refused(files, tmp_path, where, spoil, says):
    write(tmp_path / "policy.toml", RULES.format(200))
    write(tmp_path / "policy.d" / "a.toml", RULES.format(200))
    spoil(tmp_path / where)
    with pytest.raises(PolicyRefused, match=says):
        files.current()


def test_there_are_not_more_files_than_can_be_read(files, tmp_path):
    write(tmp_path / "policy.toml", RULES.format(200))
    for number in range(257):
        write(tmp_path / "policy.d" / f"{number}.toml", "version = 1")
    with pytest.raises(PolicyRefused, match="holds 257 files; 256 are read"):
        files.current()


def test_what_was_refused_is_not_read_again_for_each_who_asks(tmp_path, monkeypatch):
    looks: list[str] = []

    def nobody(name: str) -> int:
        looks.append(name)
        raise KeyError(name)

    monkeypatch.setattr(policy_module, "_uid", nobody)
    (tmp_path / "policy.toml").write_text('version = 1\n[[rule]]\nusers = ["alice"]\n')
    clock = VirtualClock()
    files = PolicyFiles(tmp_path / "policy.toml", tmp_path / "policy.d", os.geteuid(), now=clock.now)
    for _ in range(3):
        clock.wait_until(clock.now() + 1.5)
        with pytest.raises(PolicyRefused, match="'alice' in users of rule 1 is not known here"):
            files.current()
    assert looks == ["alice"]
    monkeypatch.setattr(policy_module, "_uid", lambda name: 20_001)
    clock.wait_until(clock.now() + 5.0)
    assert files.current().closed


PAGE = (ROOT / "docs" / "helper.md").read_text()
BLOCKS = {block.language: block.text for block in ALL_BLOCKS if block.page == "docs/helper.md"}


def test_the_client_of_the_page_sets_a_cap_and_gives_it_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_module, "USUAL_POLICY", tmp_path / "none.toml")
    with Serving(tmp_path, Bounds()).running() as serving:
        spoken: dict[str, object] = {}
        exec(BLOCKS["python"].replace("/run/autocap/helper.sock", str(serving.path)), spoken)
        assert serving.machine.cards["gpu0"].sets == [0.8 * 260.0, 260.0]
        spoken["helper"]._socket.close()  # type: ignore[attr-defined]
        spoken["helper"]._answers.close()  # type: ignore[attr-defined]


def test_the_policy_of_the_page_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_module, "_uid", lambda name: 20_001)
    monkeypatch.setattr(policy_module, "_gid", lambda name: 30_002)
    first, second = rules_in(tomllib.loads(BLOCKS["toml"]), "policy.toml")
    assert (first.groups, first.min_w, first.max_w) == ({30_001, 30_002}, 200.0, 350.0)
    assert (second.users, second.sets_per_s, second.shared) == ({20_001}, 0.2, True)
    assert "0000:3b:00.0" in second.devices


def test_the_page_names_every_request_and_every_code() -> None:
    rows = [line.split("`")[1] for line in PAGE.splitlines() if line.startswith("| `")]
    assert set(rows) >= {*Op, *Code, *policy_module._KEYS - {"groups", "max_w", "shared", "given"}}


def test_the_bounds_on_the_page_are_those_of_the_code() -> None:
    bounds = Bounds()
    for said in (
        f"a second; {bounds.kept_places} of them are for root alone",
        f"{bounds.clients} connections, {bounds.clients_of_uid} of a user, {bounds.connects.per_s:g} new ones a second",
        f"{MOST_REQUEST_BYTES} bytes and {bounds.messages.per_s:g} requests a second",
        f"({bounds.messages.burst:g} at once) on one; {MOST_DEVICES} devices in a request",
    ):
        assert said in " ".join(PAGE.split())
    assert (bounds.sets.per_s, bounds.sets.burst, bounds.lends.per_s) == (4, 20, 1)
    assert os.path.exists(ROOT / "contrib" / "slurm" / "task_prolog.sh")
