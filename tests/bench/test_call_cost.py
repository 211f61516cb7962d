"""What a counted call costs, of steps whose answer is known."""

import numpy as np

from bench.overhead.step_cost import more


def test_that_the_processor_wanders_cancels() -> None:
    rng, steps, marks_s, t_s = np.random.default_rng(1), [], [0.0], 0.0
    for stretch in range(241):
        speed, added_s = 1 + 0.02 * np.sin(stretch / 40), 5e-6 if stretch % 4 == 2 else 0.0
        for _ in range(40):
            took_s = 2e-4 * speed * rng.lognormal(0.0, 0.01) + added_s + (0.01 if rng.random() < 0.05 else 0.0)
            steps.append((t_s, took_s))
            t_s += took_s
        marks_s.append(t_s)
    (found_s, error_s), _ = more(np.array(steps), np.array(marks_s))
    assert error_s < 3e-7
    assert abs(found_s - 5e-6) < 4 * error_s
