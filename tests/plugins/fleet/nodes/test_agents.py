"""Bounds of another clock's offset hold, however messages were delayed; what several nodes say is one sentence."""

import numpy as np
import pytest

from autocap.plugins.fleet.nodes.agents import Notes, Offset

NODES = ("node1", "node2", "node3")
OFF, OTHER = "persistence mode is off", "calls are not counted"


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("drift", [-20e-6, 20e-6, 400e-6])
def test_the_estimate_is_never_farther_off_than_it_says(seed: int, drift: float) -> None:
    rng = np.random.default_rng(seed)
    ahead_s = float(rng.uniform(-1e4, 1e4))
    there, back = rng.uniform(0.001, 0.1, 2) * (1.0, 10.0) if seed % 2 else (0.001, 0.1)  # one way is the slower

    def theirs(t_s: float) -> float:
        return t_s * (1 + drift) + ahead_s

    offset, now_s = Offset(), 0.0
    assert offset.error_s(now_s) == float("inf")
    for _ in range(500):
        said_s = now_s + float(rng.uniform(0, 1))
        heard_s = said_s + there * float(rng.uniform(0.01, 1))
        answered_s = heard_s + float(rng.uniform(0, 0.01))
        back_s = answered_s + back * float(rng.uniform(0.01, 1))
        offset.exchanged(said_s, theirs(heard_s), theirs(answered_s), back_s)
        for later_s in (0.0, 0.3):
            now_s = back_s + later_s
            truth_s = theirs(now_s) - now_s
            assert abs(offset.ahead_s - truth_s) <= offset.error_s(now_s) + 1e-9
    assert offset.error_s(now_s) < there + back


def test_an_estimate_that_holds_does_not_move() -> None:
    offset = Offset()
    offset.exchanged(0.0, 100.01, 100.01, 0.02)
    before_s = offset.ahead_s
    offset.exchanged(1.0, 101.5, 101.5, 2.0)  # says less
    assert offset.ahead_s == before_s == pytest.approx(100.0)


def test_a_clock_that_has_jumped_is_estimated_anew() -> None:
    offset = Offset()
    offset.exchanged(0.0, 100.01, 100.01, 0.02)
    offset.exchanged(1.0, 501.01, 501.01, 1.02)
    assert offset.ahead_s == pytest.approx(500.0)
    assert offset.error_s(1.02) == pytest.approx(0.01, rel=0.01)


def test_the_same_clock_is_exact() -> None:
    offset = Offset.same(12.5)
    offset.exchanged(0.0, 13.0, 13.0, 5.0)
    assert (offset.ahead_s, offset.error_s(1e6)) == (12.5, 0.0)


@pytest.mark.parametrize(
    ("speakers", "living", "after_s", "sentences"),
    [
        (NODES, NODES, 0.0, (f"all nodes: {OFF}",)),
        (NODES[:2], NODES, 0.9, ()),
        (NODES[:2], NODES, 1.0, (f"node1, node2: {OFF}",)),
        (NODES[:2], NODES[:2], 0.0, (f"all nodes: {OFF}",)),
        (NODES[:2], (), 0.0, (f"node1, node2: {OFF}",)),
        (NODES[:1], NODES[:1], 0.0, (f"node1: {OFF}",)),
        (("node1", "node1", *NODES), NODES, 0.0, (f"all nodes: {OFF}",)),
    ],
)
def test_the_same_sentence_of_several_nodes(
    speakers: tuple[str, ...], living: tuple[str, ...], after_s: float, sentences: tuple[str, ...]
) -> None:
    notes = Notes()
    for name in speakers:
        notes.said(name, OFF, 5.0)
    assert notes.take(living, 5.0 + after_s) == sentences
    assert notes.take(living, 7.0) == ((f"node1, node2: {OFF}",) if not sentences else ())


def test_other_words_and_our_own_are_sentences_of_their_own() -> None:
    notes = Notes()
    notes.add("the nodes differ")
    notes.said("node1", OFF, 0.0)
    notes.said("node2", OTHER, 0.0)
    assert notes.take(NODES, 2.0) == ("the nodes differ", f"node1: {OFF}", f"node2: {OTHER}")
