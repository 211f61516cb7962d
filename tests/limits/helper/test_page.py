"""What docs/helper.md shows works: its client, its policy, its numbers."""

import os
import tomllib
from pathlib import Path

import pytest

from autocap.limits.helper import policy
from autocap.limits.helper.policy import rules_in
from autocap.limits.helper.protocol import MOST_DEVICES, MOST_REQUEST_BYTES, Code, Op
from autocap.wire.guests import Bounds
from tests.docs.pages import ALL_BLOCKS, ROOT
from tests.limits.helper.test_server import Serving

PAGE = (ROOT / "docs" / "helper.md").read_text()
BLOCKS = {block.language: block.text for block in ALL_BLOCKS if block.page == "docs/helper.md"}


def test_the_client_of_the_page_sets_a_cap_and_gives_it_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "USUAL_POLICY", tmp_path / "none.toml")
    with Serving(tmp_path, Bounds()).running() as serving:
        spoken: dict[str, object] = {}
        exec(BLOCKS["python"].replace("/run/autocap/helper.sock", str(serving.path)), spoken)
        assert serving.machine.cards["gpu0"].sets == [0.8 * 260.0, 260.0]
        spoken["helper"]._socket.close()  # type: ignore[attr-defined]
        spoken["helper"]._answers.close()  # type: ignore[attr-defined]


def test_the_policy_of_the_page_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "_uid", lambda name: 20_001)
    monkeypatch.setattr(policy, "_gid", lambda name: 30_002)
    first, second = rules_in(tomllib.loads(BLOCKS["toml"]), "policy.toml")
    assert (first.groups, first.min_w, first.max_w) == ({30_001, 30_002}, 200.0, 350.0)
    assert (second.users, second.sets_per_s, second.shared) == ({20_001}, 0.2, True)
    assert "0000:3b:00.0" in second.devices


def test_the_page_names_every_request_and_every_code() -> None:
    rows = [line.split("`")[1] for line in PAGE.splitlines() if line.startswith("| `")]
    assert set(rows) >= {*Op, *Code, *policy._KEYS - {"groups", "max_w", "shared", "given"}}


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
