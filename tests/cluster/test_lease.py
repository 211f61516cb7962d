"""For how long a controller's word holds, in virtual time."""

from autocap.cluster.agent.lease import LEAVE_S, RESTORE_S, Lease


def test_a_silence_of_two_seconds_lapses_once_and_one_of_eight_ends() -> None:
    lease = Lease(10.0)
    assert lease.next_s == 10.0 + RESTORE_S
    assert not lease.lapses(11.99)
    assert lease.lapses(12.0)
    assert not lease.lapses(12.5)
    assert lease.next_s == 10.0 + LEAVE_S
    assert not lease.is_over(17.99)
    assert lease.is_over(18.0)


def test_words_that_return_arm_it_again_and_again() -> None:
    lease = Lease(0.0)
    for start_s in (0.0, 5.0, 12.0):
        lease.word(start_s)
        assert not lease.lapses(start_s + 1.9)
        assert lease.lapses(start_s + 2.1)
        assert not lease.is_over(start_s + 4.0)


def test_words_in_time_never_let_it_lapse() -> None:
    lease = Lease(0.0)
    for half in range(1, 1000):
        assert not lease.lapses(half * 0.5)
        assert not lease.is_over(half * 0.5)
        lease.word(half * 0.5)
