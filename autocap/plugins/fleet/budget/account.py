"""One job in the ledger: what it may have of the budget, and what may be in force at its devices. Watts are of the cap
of one of its devices; `charged_w` is of all."""

from dataclasses import dataclass, replace

from autocap.plugins.fleet.budget.curves import JobCurve

SLACK_W = 5.0  # that a cap stays above the draw of a job whom it does not bind


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A cap for all devices of a job, watts. serial: of this order; whoever carries it out disregards an order whose
    serial is lower than one it has had, and confirms with it."""

    name: str
    cap_w: float
    serial: int


@dataclass(slots=True, kw_only=True)
class Account:
    """ordered_w: by the latest order; the cap found where there was none yet. standing_w: the highest cap that may be
    in force, which is higher until that order is confirmed. target_w: what the job is to have, `None` until caps were
    shared among all. order: the latest, `None` once it is confirmed; sent_s: when it was last sent. lost_s: when it was
    last heard of, `None` while it is. draw_w: what its devices draw at most, where no cap binds them. weight: in place
    of its curve's. measures: whether somebody measures what caps cost it. place: its devices, by which it is known that
    somebody was there before.
    """

    name: str
    curve: JobCurve
    ordered_w: float
    standing_w: float
    target_w: float | None = None
    expected: float = 0.0
    order: Order | None = None
    sent_s: float = 0.0
    told: bool = False
    lost_s: float | None = None
    draw_w: float | None = None
    weight: float | None = None
    measures: bool = False
    place: str = ""

    @property
    def lowest_w(self) -> float:
        """The lowest cap that may be set."""
        return float(self.curve.caps_w[0])

    @property
    def charged_w(self) -> float:
        """What it takes of the budget, whatever it draws."""
        return self.curve.devices * self.standing_w

    def wanted(self) -> JobCurve:
        """The curve, up to what its devices draw and some slack: a cap above that is of no use to it."""
        curve = self.curve if self.draw_w is None else self.curve.up_to(self.draw_w + SLACK_W)
        return curve if self.weight is None else replace(curve, weight=self.weight)

    def drew(self, watts: float) -> bool:
        """Take in what a device draws at most; whether that changes what the job wants. A cap binds where the draw
        comes near it: then the draw says nothing of what the job would take."""
        before_w = self.draw_w
        if watts > self.standing_w - SLACK_W / 2:
            self.draw_w = None
        elif self.draw_w is not None or watts + SLACK_W <= self.standing_w:
            self.draw_w = watts
        if before_w is None or self.draw_w is None:
            return before_w is not self.draw_w
        if abs(before_w - self.draw_w) < SLACK_W:
            self.draw_w = before_w
        return self.draw_w != before_w
