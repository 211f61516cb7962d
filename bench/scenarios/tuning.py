"""Thresholds of the product with other values, for the jobs of one bench."""

import argparse
from collections.abc import Mapping

from autocap.config import values
from autocap.config.option import Threshold, thresholds
from autocap.controller import tuning as of_controller
from autocap.measurement import tuning as of_measurement
from autocap.text import did_you_mean

_ROOMS = (of_measurement.TUNING, of_controller.TUNING)


def known() -> dict[str, Threshold]:
    """By name, as they are now."""
    return {one.name: one for room in _ROOMS for one in thresholds(room)}


def change(text: str) -> tuple[str, float]:
    """`NAME=VALUE`. Raises ArgumentTypeError."""
    name, given = values.key_value(text)
    one = known().get(name)
    if one is None:
        meant = did_you_mean(name, known())
        raise argparse.ArgumentTypeError(f"unknown threshold '{name}'{meant}; `autocap config --all` lists them")
    value, is_whole = values.number_or_none(given), isinstance(one.value, int)
    if value is None or not 0 < value <= values.LARGEST or (is_whole and value != int(value)):
        what = "a whole number from 1" if is_whole else "a number above 0, up"
        raise argparse.ArgumentTypeError(
            f"{name} cannot be {values.shown(given)}; give {what} to {values.plain(values.LARGEST)} "
            f"(built-in: {one.value:g} {one.unit})"
        )
    return name, int(value) if is_whole else value


def use(changes: Mapping[str, float]) -> None:
    """Have other values from now on, in this process."""
    for room in _ROOMS:
        for one in thresholds(room):
            if one.name in changes:
                object.__setattr__(room, one.name, changes[one.name])  # frozen for all others
