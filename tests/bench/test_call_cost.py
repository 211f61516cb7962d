"""What a counted call costs, by twins that take turns: on steps whose answer is known."""

import numpy as np
import pytest

from bench.overhead.call_cost import _inside, _more, _Stretch


@pytest.mark.parametrize("more", [0.0, 0.001])
def test_what_the_twins_differ_in_and_how_the_processor_wanders_cancels(more: float) -> None:
    rng, couples, pairs = np.random.default_rng(1), [], []
    t_s = 0.0
    for _ in range(150):
        couple = []
        for counted in (0, 1) if rng.random() < 0.5 else (1, 0):
            since_s, speed = t_s, rng.normal(1.0, 0.02)
            for _ in range(40):
                times = 0.012 * speed * np.array([1.0, 1.03]) * rng.lognormal(0.0, 0.01, 2)
                times[counted] *= 1 + more
                times += np.where(rng.random(2) < 0.05, 0.01, 0.0)  # others take the processor
                pairs.append([[t_s, times[0], times[0]], [t_s + times[0], times[1], times[1]]])
                t_s += float(times.sum())
            couple.append(_Stretch(counted=counted, since_s=since_s, until_s=t_s))
            t_s += 0.1
        couples.append((couple[couple[0].counted or 0], couple[1 - (couple[0].counted or 0)]))
    steps = np.array(pairs)
    found, error = _more(steps, np.log(steps[..., 2]), couples)
    assert error < 0.0003
    assert abs(found - more) < 4 * error
    assert np.count_nonzero(_inside(steps, couples[0][0])) == 40
