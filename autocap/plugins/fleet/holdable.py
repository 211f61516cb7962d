"""The devices whose limits a budget can hold, by what --device names."""

from typing import cast

from autocap.devices import inventory_of, kind_of
from autocap.devices.inventory import HoldableInventory
from autocap.errors import UsageError


def holdable(name: str) -> HoldableInventory:
    """All devices of the kind. Raises UsageError where their limits cannot be held for others."""
    kind, why = kind_of(name), "its devices are known to the session of their job alone, which sets their caps"
    inventory = inventory_of(kind)
    if inventory is not None:
        if inventory.shared is None:
            return cast(HoldableInventory, inventory)
        why = inventory.shared
    raise UsageError(f"a budget cannot hold --device {name}: {why}; choose nvml")
