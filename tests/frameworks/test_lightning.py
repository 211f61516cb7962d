"""Lightning's own Trainer."""

import pytest

from tests.frameworks.playing import RUN, Played, on_file, play, require

require("lightning")

PLAY = "tests.frameworks.lightning_play"


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """A process that has itself tuned."""
    return play(tmp_path_factory.mktemp("inside"), PLAY, "callback")


@pytest.fixture(scope="module")
def under_run(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """A script that does not know of autocap."""
    folder = tmp_path_factory.mktemp("run")
    return play(folder, *RUN, on_file(folder), "--", PLAY, "plain")


def test_the_callback_counts_optimiser_steps_and_sees_the_validation_as_a_pause(inside: Played) -> None:
    (facts,) = inside.told["tuned"]
    assert facts["counted"] == facts["steps"]
    assert 0 < facts["iterations"] <= facts["steps"]
    inside.require_paused("tuned")
    assert (facts["ended_because"], facts["limit_w"]) == ("the tuned block ended", 260.0)


@pytest.mark.parametrize("scene", ["failed", "block"])
def test_the_callback_and_the_block_end_with_a_failure_in_the_middle_of_a_search(inside: Played, scene: str) -> None:
    (facts,) = inside.told[scene]
    assert facts["said"] != "at 260 W"
    assert "SEARCHING" in inside.states(scene)
    assert (facts["ended_because"], facts["limit_w"]) == ("the tuned block ended", 260.0)


def test_without_a_gpu_it_trains_on_with_one_warning(inside: Played) -> None:
    (facts,) = inside.told["without-gpu"]
    assert facts["trained"] > 0
    assert inside.err.count("the job runs untuned: no device to tune: no NVIDIA GPU can be used") == 1
    assert facts["ended_because"].startswith("no device to tune: no NVIDIA GPU can be used")


def test_after_all_that_nothing_is_left(inside: Played) -> None:
    assert inside.status == 0
    inside.require_untouched()


def test_under_run_the_steps_of_a_script_are_counted_and_its_failure_is_its_own(under_run: Played) -> None:
    (facts,) = under_run.told["run"]
    assert facts["counted"] == facts["steps"]
    under_run.require_paused("run")
    assert under_run.status == 1
    assert "tests.frameworks.stage.Failure: at " in under_run.err
    assert under_run.events("run", "run_ended")[0]["exit_status"] == 1
    under_run.require_untouched()
