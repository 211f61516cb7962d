"""For how long a controller's word holds, in virtual time."""

from autocap.limits.times import ALONE_S, HOLDS_S
from autocap.plugins.fleet.nodes.agent.lease import Lease


def answered(lease: Lease, number: int, now_s: float) -> None:
    """A word comes and is answered, and the answer before is known to have been heard."""
    lease.heard(number - 1)
    lease.answer(number, now_s)
    lease.word(now_s)


def test_a_silence_lapses_once_and_one_of_six_ends() -> None:
    lease = Lease(10.0)
    assert lease.next_s == 10.0 + HOLDS_S
    assert not lease.lapses(9.99 + HOLDS_S)
    assert lease.lapses(10.0 + HOLDS_S)
    assert not lease.lapses(10.5 + HOLDS_S)
    assert lease.next_s == 10.0 + ALONE_S
    assert not lease.is_over(15.99)
    assert lease.is_over(16.0)


def test_answers_that_are_heard_again_arm_it_again_and_again() -> None:
    lease = Lease(0.0)
    for number, start_s in enumerate((0.0, 5.0, 12.0)):
        answered(lease, 2 * number, start_s)
        answered(lease, 2 * number + 1, start_s)
        assert not lease.lapses(start_s + HOLDS_S - 0.1)
        assert lease.lapses(start_s + HOLDS_S + 0.1)
        assert not lease.is_over(start_s + 4.0)


def test_answers_heard_in_time_never_let_it_lapse() -> None:
    lease = Lease(0.0)
    for half in range(1, 1000):
        assert not lease.lapses(half * 0.5)
        assert not lease.is_over(half * 0.5)
        answered(lease, half, half * 0.5)


def test_words_of_who_does_not_hear_us_hold_no_limit_and_keep_us_there() -> None:
    lease = Lease(0.0)
    answered(lease, 1, 0.0)
    answered(lease, 2, 0.4)
    for tenth in range(5, 120):
        lease.heard(1)
        lease.answer(tenth, tenth / 10)
        lease.word(tenth / 10)
        assert lease.is_lapsed(tenth / 10) == (tenth >= 10 * HOLDS_S)
    assert not lease.is_over(12.0)
    lease.heard(999)  # which was never said
    assert lease.is_lapsed(12.0)
    lease.heard(119)
    assert not lease.is_lapsed(12.0)
