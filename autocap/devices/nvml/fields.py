"""NVML's field values: several quantities of one GPU in one call, each with a return code and a stamp of its own.

All power fields are milliwatts (NVML reference, "Field Value Enums").
"""

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import pynvml

from autocap.devices.nvml.calls import call

INSTANT_POWER, ENFORCED_LIMIT, REQUESTED_LIMIT = 186, 190, 192
GPU_SCOPE, MODULE_SCOPE = 0, 1

# nvmlValueType_t: which member of the union holds the value.
_MEMBERS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}


class _Plain(ctypes.Structure):
    """pynvml's structure without its Python code at every access, which twenty samples a second would feel."""

    _fields_ = pynvml.c_nvmlFieldValue_t._fields_


class FieldValue(NamedTuple):
    """One field as answered. code: its nvmlReturn_t, 0 where there is a value. stamp_us: the driver's time stamp,
    microseconds since 1970 by the CPU's clock, 0 where it gave none."""

    value: float
    code: int
    stamp_us: int


def read_fields(what: str, handle: object, fields: Sequence[tuple[int, int]]) -> tuple[FieldValue, ...]:
    """Several fields of one GPU, each (field, scope), in their order. Raises NvmlError where the call itself fails."""
    answers = call(what, pynvml.nvmlDeviceGetFieldValues, handle, list(fields))
    return tuple(
        FieldValue(
            value=float(getattr(answer.value, _MEMBERS.get(answer.valueType, "ullVal"))),
            code=int(answer.nvmlReturn),
            stamp_us=int(answer.timestamp),
        )
        for answer in (_Plain * len(answers)).from_buffer(answers)
    )
