"""Hugging Face's own Trainer, and Lightning's."""

import pytest

from tests.frameworks.playing import ACCELERATE, RUN, Played, on_file, play, require

HUGGINGFACE, LIGHTNING = "tests.frameworks.huggingface_play", "tests.frameworks.lightning_play"
NEEDS = {HUGGINGFACE: ("transformers", "accelerate"), LIGHTNING: ("lightning",)}


@pytest.fixture(scope="module", params=NEEDS, ids=["huggingface", "lightning"])
def trainer(request: pytest.FixtureRequest) -> str:
    """The module that plays."""
    require(*NEEDS[request.param])
    return str(request.param)


@pytest.fixture(scope="module")
def inside(trainer: str, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """A process that has itself tuned."""
    return play(tmp_path_factory.mktemp("inside"), trainer, "callback")


@pytest.fixture(scope="module")
def under_run(trainer: str, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """A script that does not know of autocap."""
    folder = tmp_path_factory.mktemp("run")
    return play(folder, *RUN, on_file(folder), "--", trainer, "plain")


def test_the_callback_counts_optimiser_steps_and_sees_the_evaluation_as_a_pause(inside: Played) -> None:
    (facts,) = inside.told["tuned"]
    assert facts["counted"] == facts["steps"]
    assert 0 < facts["iterations"] <= facts["steps"]
    inside.require_paused("tuned")
    assert (facts["ended_because"], facts["limit_w"]) == ("the tuned block ended", 260.0)


@pytest.mark.parametrize(("scene", "before"), [("failed", "SEARCHING"), ("kept", "HOLDING"), ("block", "SEARCHING")])
def test_a_training_that_fails_ends_its_tuning_though_no_hook_is_called(trainer, inside, scene, before) -> None:
    if (trainer, scene) == (LIGHTNING, "kept"):
        pytest.skip("of Hugging Face alone")
    (facts,) = inside.told[scene]
    assert facts["said"] != "at 260 W"
    assert before in inside.states(scene)
    assert (facts["ended_because"], facts["limit_w"]) == ("the tuned block ended", 260.0)


def test_without_a_gpu_it_trains_on_with_one_warning(trainer: str, inside: Played) -> None:
    (facts,) = inside.told["without-gpu"]
    assert facts["steps" if trainer == HUGGINGFACE else "trained"] > 0
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


def test_of_two_ranks_the_first_has_both_tuned(tmp_path) -> None:
    require(*NEEDS[HUGGINGFACE])
    launched = play(tmp_path, *ACCELERATE, "-m", HUGGINGFACE, "rank")
    assert launched.status == 0
    first, other = sorted(launched.told["run"], key=lambda facts: "counted" not in facts)
    assert first["counted"] == first["steps"] == other["steps"]
    assert (first["ended_because"], first["ranks"]) == ("the tuned block ended", 2)
    assert (other["ended_because"], other["ranks"]) == ("another rank has the job tuned", 2)
    assert launched.events("run", "run_started")[0]["pid"] == launched.pid
    launched.require_untouched()
