"""torchrun and `accelerate launch`, with two ranks each on the CPU."""

from pathlib import Path

from tests.frameworks.playing import ACCELERATE, RUN, Played, on_file, play, require

require("torch")

RANKS = "tests.frameworks.ranks_play"
TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", RANKS)


def require_counted_once(played: Played) -> None:
    """Two ranks took these steps together; whoever counts them counts one rank's."""
    facts = played.told["run"]
    assert sorted(of["rank"] for of in facts) == [0, 1]
    assert {of["ranks"] for of in facts} == {2}
    assert {of["counted"] for of in facts if "counted" in of} == {facts[0]["steps"]} == {facts[1]["steps"]}


def test_under_run_torchrun_is_counted_once_and_a_rank_that_fails_leaves_no_cap(tmp_path: Path) -> None:
    played = play(tmp_path, *RUN, on_file(tmp_path), "--", *TORCHRUN, "fails")
    require_counted_once(played)
    played.require_paused("run")
    assert played.status == 1
    assert "the last rank has failed" in played.err
    played.require_untouched()


def test_of_the_ranks_of_torchrun_the_first_has_all_tuned(tmp_path: Path) -> None:
    played = play(tmp_path, *TORCHRUN, "block")
    require_counted_once(played)
    played.require_paused("run")
    said = {facts["rank"]: facts["ended_because"] for facts in played.told["run"]}
    assert said == {0: "the tuned block ended", 1: "another rank has the job tuned"}
    assert played.events("run", "run_started")[0]["pid"] == played.pid
    assert played.status == 0
    played.require_untouched()


def test_without_a_gpu_torchrun_goes_on_untuned_and_unharmed(tmp_path: Path) -> None:
    played = play(tmp_path, *RUN, "--", *TORCHRUN, "untuned")
    assert [facts["steps"] for facts in played.told["run"]] == [50, 50]
    assert played.err.count("the job runs untuned: no device to tune: no NVIDIA GPU can be used") == 1
    assert played.status == 0
    played.require_untouched()


def test_under_run_accelerate_is_counted_once_and_ends_as_it_would(tmp_path: Path) -> None:
    require("accelerate")
    played = play(tmp_path, *RUN, on_file(tmp_path), "--", *ACCELERATE, "-m", RANKS, "accelerate")
    require_counted_once(played)
    played.require_paused("run")
    assert played.status == 0
    played.require_untouched()
