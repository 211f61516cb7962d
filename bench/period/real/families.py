"""The families of real-like signals: loads, the sensors and readers they are seen through, and what can be known."""

from dataclasses import dataclass, replace

import numpy as np

from autocap.devices.model.sensor import SensorModel
from autocap.testing.logged_sensors import LOGGED
from bench.period.real.loads import ABOVE, BURSTS, FREQUENT, Checkpoints, Constant, Load, Rendering, Training, Wave
from bench.period.real.polling import (
    FAST,
    LEAD_S,
    SMI_100MS,
    STARVED,
    Reader,
    Recording,
    StarvedReader,
    Utilisation,
    poll,
)

WINDOWS_S = (20.0, 40.0, 60.0)

GLOO_125M = Training(step_s=(0.65, 0.74))
GLOO_350M = Training(step_s=(1.43, 1.63))
NCCL_350M = Training(step_s=(0.40, 0.44), reduce=(0.20, 0.40), depth=(0.70, 0.15), busy=1.0)
SHORT = replace(NCCL_350M, step_s=(0.22, 0.30))
H100_DDP = Training(
    step_s=(0.230, 0.238),
    reduce=(0.20, 0.40),
    busy=1.0,
    top_w=(560.0, 640.0),
    idle_w=(250.0, 350.0),
    checkpoints=Checkpoints(length_s=(13.0, 17.0), burst=(0.5, 2.0), levels_w=(180.0, 120.0)),
)

Seen = tuple[SensorModel, Reader | StarvedReader]

_LIMIT_NOISE = (0.008, 0.024)
_UTILISATION_S = (1 / 6, 1 / 3, 1.0)  # NVML: between a sixth of a second and a second, depending on the product
_TITAN_X: Seen = (LOGGED["titan-x"], SMI_100MS)
_A100: Seen = (LOGGED["a100-logged"], FAST)
_RTX_3090: Seen = (LOGGED["rtx-3090-logged"], FAST)
_COARSE = (_A100, _RTX_3090, (LOGGED["a100-logged"], SMI_100MS), (LOGGED["rtx-4090-logged"], SMI_100MS))
_H100: Seen = (replace(LOGGED["h100-average"], noise=0.018), SMI_100MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Signals of one kind. steps: whether the sensor and the reader let the load's steps through, so that a period is
    there to be found; else whatever is called periodic is wrong. seen: sensors and readers. limit_w: the power limit.
    """

    name: str
    steps: bool
    loads: tuple[Load, ...]
    seen: tuple[Seen, ...] = (_TITAN_X,)
    limit_w: float = np.inf
    counter: bool = False

    def record(self, number: int, window_s: float, rng: np.random.Generator) -> Recording:
        """The signal of that number, window_s long: sensors and readers, and then loads, come in turn."""
        model, reader = self.seen[number % len(self.seen)]
        load = self.loads[number // len(self.seen) % len(self.loads)]
        if np.isfinite(self.limit_w):
            model = replace(model, limit_noise=rng.uniform(*_LIMIT_NOISE))
        sampled_s = float(rng.spawn(1)[0].choice(_UTILISATION_S))
        utilisation = Utilisation(window_s=sampled_s, updates=max(1, round(sampled_s / model.update_s)))
        truth = load.power(window_s + LEAD_S, rng)
        return poll(truth, model, reader, rng, limit_w=self.limit_w, utilisation=utilisation, counter=self.counter)


def _all_with(checkpoints: Checkpoints) -> tuple[Training, ...]:
    return tuple(replace(load, checkpoints=checkpoints) for load in (GLOO_125M, GLOO_350M, NCCL_350M))


FAMILIES = (
    Family(name="gloo 125M", steps=True, loads=(GLOO_125M,)),
    Family(name="gloo 350M", steps=True, loads=(GLOO_350M,)),
    Family(name="NCCL 350M", steps=True, loads=(NCCL_350M,)),
    Family(name="in bursts", steps=True, loads=_all_with(BURSTS)),
    Family(name="frequent checkpoints", steps=True, loads=_all_with(FREQUENT)),
    Family(name="checkpoints above", steps=True, loads=_all_with(ABOVE)),
    Family(name="gloo 350M at the cap", steps=True, loads=(replace(GLOO_350M, top_w=(248.0, 250.0)),), limit_w=250.0),
    Family(name="gloo 125M, counter", steps=True, loads=(GLOO_125M,), counter=True),
    Family(name="gloo, 100 ms sensors", steps=True, loads=(GLOO_125M, GLOO_350M), seen=_COARSE),
    Family(name="gloo 350M, starved", steps=True, loads=(GLOO_350M,), seen=((LOGGED["titan-x"], STARVED),)),
    Family(name="steps of 2 to 3 readings", steps=True, loads=(SHORT, replace(SHORT, checkpoints=FREQUENT))),
    Family(
        name="H100, 1 s average", steps=False, loads=(H100_DDP, replace(H100_DDP, checkpoints=FREQUENT)), seen=(_H100,)
    ),
    Family(name="wave of 20 ms", steps=False, loads=(Wave(period_s=0.020),), seen=_COARSE),
    Family(name="wave of 50 ms", steps=False, loads=(Wave(period_s=0.050),), seen=_COARSE),
    Family(name="wave of 100 ms", steps=False, loads=(Wave(period_s=0.100),), seen=_COARSE),
    Family(name="wave of 20 ms, counter", steps=False, loads=(Wave(period_s=0.020),), seen=_COARSE, counter=True),
    Family(
        name="wave of 20 ms, 20 ms sensor",
        steps=False,
        loads=(Wave(period_s=0.020),),
        seen=((LOGGED["v100-logged"], FAST),),
    ),
    Family(
        name="wave, starved",
        steps=False,
        loads=(Wave(period_s=0.020), Wave(period_s=0.1)),
        seen=((LOGGED["a100-logged"], STARVED),),
    ),
    Family(name="constant", steps=False, loads=(Constant(power_w=(100.0, 240.0)),), seen=(_TITAN_X, *_COARSE)),
    Family(
        name="constant at the cap",
        steps=False,
        loads=(Constant(power_w=(250.0, 250.0)),),
        seen=(_TITAN_X, *_COARSE),
        limit_w=250.0,
    ),
    Family(name="rendering", steps=False, loads=(Rendering(),), seen=(_TITAN_X, *_COARSE)),
)
