"""Whatever changes a cap holds a Guardian: lock, journal, watchdog process, restore."""

from autocap.guardian.guarded_limit import ForeignLimit, Restored
from autocap.guardian.guardian import Guardian
from autocap.guardian.recovery import UNSETTLED, Fate, Settled, settle

__all__ = ["UNSETTLED", "Fate", "ForeignLimit", "Guardian", "Restored", "Settled", "settle"]
