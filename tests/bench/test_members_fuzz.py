"""`python -m bench fuzz --kinds members`: that it sees what goes against its expectations."""

import random

from autocap.plugins.fleet.budget.words import Join, Known, decode_request, encode_request
from bench.fuzz.members.crowd import answered
from bench.fuzz.members.scenes import HEAD, Scene, _judge, _word


def test_watts_that_were_taken_and_an_owner_who_waits_are_seen() -> None:
    scene = Scene(name="budget", cases=1, moved_w=20.0, waited_s=[0.1, 2.5], others_s=[0.1])
    _judge(scene)
    assert scene.complaints == ["20 W were taken from another job", "the owner waited 2.5 s"]
    assert len(scene.row.split()) == len(HEAD.split()) - 2  # "moved W" is two words, and the unit another one
    fine = Scene(name="budget", moved_w=0.2, waited_s=[0.1], others_s=[1.9])
    _judge(fine)
    assert fine.complaints == []


def test_a_refusal_is_no_answer() -> None:
    def refused() -> None:
        raise ConnectionRefusedError

    assert set(answered(refused, 0.01)) == {float("inf")}


def test_every_word_of_an_attack_is_one_of_the_protocol() -> None:
    rng = random.Random(0)
    words = [_word(rng, ["GPU-a", "GPU-b", "GPU-c", "GPU-d", "GPU-e"], [7, 1, 2**22]) for _ in range(200)]
    for word in words:
        assert decode_request(encode_request(1, word)) == (1, word)
    assert {Join, Known} < {type(word) for word in words}
