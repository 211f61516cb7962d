"""What a report says of the machine around the GPUs, where its power counts."""

from autocap.rounding import with_error
from autocap.summary import ESTIMATED, NodeSummary


def heading(node: NodeSummary, *, emulated: bool) -> str:
    """What the energy in the report is of. emulated: the GPUs are, so that no meter reads them."""
    if not node.whole:
        return f"energy is the whole node's: the GPUs' and beside it {node.source}"
    every = "" if node.refresh_s is None else f", a fresh reading every {node.refresh_s:.2g} s"
    included = "without the emulated GPUs'" if emulated else "the GPUs' included"
    return f"energy is the whole node's, {included}, as {node.source} reads it{every}"


def at_rest(node: NodeSummary) -> list[str]:
    """Its idle power, and its energy as a machine with another idle power would have it."""
    if node.idle_w is None:
        wanted = " and its energy is not compared with another's" if node.standard_idle_w is not None else ""
        return [f"what the node draws at rest was not seen before the first iteration{wanted}; pass --idle-power"]
    seen = ""
    if node.idle_source == ESTIMATED:
        seen = f", by the lowest 2 % of {node.idle_seen_s:.0f} s before the first iteration"
    share = "" if node.idle_share is None else f", {100 * node.idle_share:.0f} % of the baseline's power"
    told = [f"at rest the node draws {node.idle_w:.0f} W{seen}{share}"]
    if node.standard:
        energies = ", ".join(
            f"{with_error(one.energy_per_iteration_j, one.stderr_j)} J/iter at {max(one.cap_w):g} W"
            for one in node.standard
        )
        told.append(f"as on a machine that draws {node.standard_idle_w:g} W at rest: {energies}")
    return told
