import numpy as np
import pytest

from autocap.measurement.stats import chi_square_above, normal_below, student_above


@pytest.fixture(scope="module", autouse=True)
def _scipy() -> None:
    """Not above: every process that collects the tests would wait for it."""
    global special
    from scipy import special


def test_the_normal_is_right_from_one_tail_to_the_other() -> None:
    z = np.linspace(-37.0, 37.0, 7401).reshape(-1, 3)
    assert normal_below(z) == pytest.approx(special.ndtr(z), rel=1e-11)


def test_a_normal_is_below_infinity_and_above_minus_infinity() -> None:
    ends = normal_below(np.array([-np.inf, -1e300, 1e300, np.inf]))
    assert ends.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("dof", [1, 2, 3, 4, 7, 30, 101])
def test_chi_square_is_right_for_odd_and_even_degrees_of_freedom(dof: int) -> None:
    x = np.concatenate(([0.0], np.geomspace(1e-6, 1e3, 50)))
    found = [chi_square_above(dof, one) for one in x.tolist()]
    assert found == pytest.approx(special.chdtrc(dof, x).tolist(), rel=1e-9)


def test_of_what_cannot_be_explained_at_all_nothing_is_left() -> None:
    assert chi_square_above(40, 1e18) == chi_square_above(41, 1e18) == 0


@pytest.mark.parametrize("dof", [1, 2, 3, 4, 7, 30, 101])
def test_students_t_is_right_for_odd_and_even_degrees_of_freedom(dof: int) -> None:
    t = np.linspace(0.0, 30.0, 50)
    assert [student_above(dof, one) for one in t.tolist()] == pytest.approx(special.stdtr(dof, -t).tolist(), abs=1e-14)
