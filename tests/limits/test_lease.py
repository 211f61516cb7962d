"""For how long limits are held for somebody who is silent, in virtual time."""

import math

from autocap.limits.lease import Lease
from autocap.limits.times import ALONE_S, HANG_S, HOLDS_S, SPENT_S, STARVED_LOOK_S, STARVED_S
from autocap.limits.vital_signs import Look


def of_node(now_s: float) -> Lease:
    return Lease(now_s, restore_s=HOLDS_S, leave_s=ALONE_S)


def answered(lease: Lease, number: int, now_s: float) -> None:
    """A word comes and is answered, and the answer before is known to have been heard."""
    lease.heard(number - 1)
    lease.answer(number, now_s)
    lease.word(now_s)


def test_a_silence_lapses_once_and_one_of_six_ends() -> None:
    lease = of_node(10.0)
    assert lease.next_s == 10.0 + HOLDS_S
    assert not lease.lapses(9.99 + HOLDS_S)
    assert lease.lapses(10.0 + HOLDS_S)
    assert not lease.lapses(10.5 + HOLDS_S)
    assert lease.next_s == 10.0 + ALONE_S
    assert not lease.is_over(15.99)
    assert lease.is_over(16.0)


def test_answers_that_are_heard_again_arm_it_again_and_again() -> None:
    lease = of_node(0.0)
    for number, start_s in enumerate((0.0, 5.0, 12.0)):
        answered(lease, 2 * number, start_s)
        answered(lease, 2 * number + 1, start_s)
        assert not lease.lapses(start_s + HOLDS_S - 0.1)
        assert lease.lapses(start_s + HOLDS_S + 0.1)
        assert not lease.is_over(start_s + 4.0)


def test_answers_heard_in_time_never_let_it_lapse() -> None:
    lease = of_node(0.0)
    for half in range(1, 1000):
        assert not lease.lapses(half * 0.5)
        assert not lease.is_over(half * 0.5)
        answered(lease, half, half * 0.5)


def test_words_of_who_does_not_hear_us_hold_no_limit_and_keep_us_there() -> None:
    lease = of_node(0.0)
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


QUEUES = Look(cpu_s=5.0, runnable=True)  # for a CPU, and has used next to none


def of_client(now_s: float, seen: Look | None = None) -> Lease:
    made = Lease(now_s, restore_s=HANG_S, leave_s=60.0)
    made.renew(now_s, seen)
    return made


def test_whatever_a_client_says_holds_its_limits_and_keeps_us_there() -> None:
    lease = of_client(0.0)
    for tenth in range(1, 1000):
        assert not lease.lapses(tenth / 10)
        if tenth % 14 == 0:
            lease.renew(tenth / 10)
    assert lease.lapses(200.0)
    assert not lease.lapses(201.0)
    lease.renew(202.0)
    assert not lease.is_lapsed(202.0)
    assert lease.lapses(202.0 + HANG_S)  # it is told anew


def test_a_silent_client_that_only_gets_no_cpu_is_waited_for() -> None:
    lease, looks = of_client(0.0, QUEUES), 0

    def look() -> Look:
        nonlocal looks
        looks += 1
        return QUEUES

    assert not lease.lapses(HANG_S - 0.01, look)
    assert looks == 0  # which costs something
    t_s = lease.lapses_s
    assert t_s == HANG_S
    while not lease.lapses(t_s, look):
        assert t_s < lease.lapses_s <= t_s + STARVED_LOOK_S + 1e-9
        t_s = lease.lapses_s
    assert t_s >= STARVED_S
    assert lease.lapses_s == math.inf
    before = looks
    assert not lease.lapses(t_s + 1, look)
    assert looks == before


def test_a_silent_client_that_is_seen_to_sleep_or_to_compute_is_not() -> None:
    for now in (Look(cpu_s=5.0, runnable=False), Look(cpu_s=5.0 + SPENT_S, runnable=True), None):
        assert of_client(0.0, QUEUES).lapses(HANG_S, lambda now=now: now)
    assert of_client(0.0).lapses(HANG_S, lambda: QUEUES)  # how it was is not known
