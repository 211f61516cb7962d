"""Whatever changes a cap holds a Guardian: lock, journal, watchdog process, restore."""

from autocap.guardian.guard import Guardian
from autocap.guardian.guarded import ForeignLimit, Restored
from autocap.guardian.leftovers import UNSETTLED, Fate, Settled, settle

__all__ = ["UNSETTLED", "Fate", "ForeignLimit", "Guardian", "Restored", "Settled", "settle"]
