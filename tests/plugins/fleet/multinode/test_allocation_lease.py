"""What a node's manager does with its part, on an emulated machine in virtual time."""

from pathlib import Path

import pytest

from autocap.limits.times import PART_HOLDS_S, SITE_GONE_S
from autocap.plugins.fleet.multinode.node.opening import AllocationTerms
from autocap.plugins.fleet.multinode.node_allocations import require_sane
from autocap.plugins.fleet.nodes.protocol import Command, CommandKind, SetAllocation
from tests.plugins.fleet.manager.stage import Stage, stage

LOW_W, FOUND_W = 100.0, 260.0


class Site:
    """Says parts to the second of two nodes, and hears its answers, or does not."""

    def __init__(self, there: Stage) -> None:
        self.there, self.terms = there, AllocationTerms(1, there.enforcer, there.now_s)
        self.number = self.heard = 0

    def say(self, part_w: float, *, serial: int = 1, hears: bool = True, policy: str = "fair") -> None:
        self.number += 1
        since = (0, self.number - self.heard)
        share = SetAllocation(
            number=self.number, policy=policy, since=since, serials=(9, serial), parts_w=(1.0, part_w)
        )
        assert self.terms.hear(self.there.now_s, share)
        if hears:
            self.heard = self.terms.books().number

    def run(self, seconds: float) -> bool:
        """Without a word; whether the site is gone for good."""
        for _ in range(round(seconds / 0.2)):
            self.there.run(0.2)
            if self.terms.pass_time(self.there.now_s):
                return True
        return False


@pytest.mark.slow
def test_a_part_holds_as_long_as_answers_are_known_to_be_heard(tmp_path: Path) -> None:
    with stage(tmp_path, 1.0, gpus=2) as there:
        site = Site(there)
        there.come(1, 0, 1)
        site.run(1.0)
        assert there.limits_w() == [LOW_W, LOW_W]
        site.say(403.0)
        assert there.limits_w() == [LOW_W, LOW_W]  # the first word proves nothing
        site.run(0.4)
        site.say(403.0)
        assert sum(there.limits_w()) == pytest.approx(400.0, abs=2.0)
        site.run(PART_HOLDS_S - 0.6)
        assert sum(there.limits_w()) == pytest.approx(400.0, abs=2.0)
        assert site.terms.books().may_w == pytest.approx(403.0)
        site.run(0.8)
        assert there.limits_w() == [LOW_W, LOW_W]
        assert not site.terms.has_part
        for _ in range(8):  # words of a site that does not hear us
            site.say(403.0, hears=False)
            site.run(0.4)
        assert there.limits_w() == [LOW_W, LOW_W]
        site.say(403.0)
        site.say(403.0)
        assert sum(there.limits_w()) == pytest.approx(400.0, abs=2.0)
        assert site.run(SITE_GONE_S + 0.4)
    assert there.limits_w() == [FOUND_W, FOUND_W]


def test_what_it_tells_is_how_it_stands(tmp_path: Path) -> None:
    with stage(tmp_path, 1.0, gpus=3) as there:
        site = Site(there)
        there.come(1, 0, 1)
        site.say(700.0)
        site.run(0.4)
        site.say(700.0, serial=5)
        site.run(0.4)
        books = site.terms.books()
        require_sane(books)
        (job,) = books.jobs
        band_w = books.reserved_w
        assert (books.serial, books.may_w, len(job.at.devices), len(books.free)) == (5, 700.0, 2, 1)
        assert (books.floor_w, books.fixed_w) == (pytest.approx(3 * LOW_W + band_w), pytest.approx(LOW_W + band_w))
        assert books.found_w == pytest.approx(3 * FOUND_W + band_w)
        assert (job.caps_w[0], job.caps_w[-1], job.at.cap_w) == (LOW_W, FOUND_W, FOUND_W)
        site.say(503.0, serial=6, policy="energy")
        lowered = site.terms.books()
        assert sum(there.limits_w()) <= 503.0 - band_w  # at once
        assert lowered.may_w > 503.0  # as long as more may be drawn
        for _ in range(4):
            site.run(0.6)
            site.say(503.0, serial=6)
        assert site.terms.books().may_w == pytest.approx(503.0)


def test_the_sites_last_word_is_answered_once_all_is_back(tmp_path: Path) -> None:
    with stage(tmp_path, 1.0, gpus=2) as there:
        site = Site(there)
        assert not site.terms.hear(there.now_s, Command(number=7, what=CommandKind.END))
        assert site.terms.end == 7
