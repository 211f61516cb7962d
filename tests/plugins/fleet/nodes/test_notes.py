"""What several nodes say in the same words is one sentence."""

import pytest

from autocap.plugins.fleet.nodes.agents import Notes

NODES = ("node1", "node2", "node3")
OFF, OTHER = "persistence mode is off", "calls are not counted"


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
