"""python -m bench overhead: what autocap itself costs, measured."""

import argparse
import sys
import time
from collections.abc import Sequence

from autocap import profiles
from autocap.clock import VirtualClock
from autocap.devices.simulated import SimulatedDevice, SimulatedJob, SimulatedNode
from autocap.periodic import PeriodProgress
from autocap.records import Sample
from autocap.sensor import PRESETS

_STRETCH_S = 60.0  # at each of the limits


def main(argv: Sequence[str]) -> int:
    """Measure and print; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench overhead", description=__doc__)
    parser.add_argument("--gpus", type=int, default=8, help="of the simulated node (default: 8)")
    parser.add_argument("--sample-hz", type=float, default=50.0, help="(default: 50)")
    parser.add_argument("--profile", default="tesla-v100/resnet50", help="(default: tesla-v100/resnet50)")
    args = parser.parse_args(argv)
    print("PeriodProgress, CPU per second of signal: learned at the limit found on arrival, followed at two caps")
    print(f"{args.gpus} GPUs, {args.sample_hz:g} samples/s, {_STRETCH_S:g} s at each limit\n")
    for sensor in ("v100", "a100", "average-1s"):
        spent_ms, worst_ms, trouble = detector_cost(args.profile, sensor, args.gpus, 1 / args.sample_hz)
        told = "followed to the end" if trouble is None else trouble
        print(f"  {sensor:12} {spent_ms:6.2f} ms a second, longest call {worst_ms:5.0f} ms; {told}")
    return 0


def detector_cost(profile: str, sensor: str, gpus: int, interval_s: float) -> tuple[float, float, str | None]:
    """CPU milliseconds a second of signal, those of the longest call, and what kept it from following the period."""
    samples = _recorded(profile, sensor, gpus, interval_s)
    progress = PeriodProgress(PRESETS[sensor].info())
    spent_s, worst_s = 0.0, 0.0
    for sample in samples:
        begin_s = time.process_time()
        progress.feed(sample)
        taken_s = time.process_time() - begin_s
        spent_s, worst_s = spent_s + taken_s, max(worst_s, taken_s)
    return 1000 * spent_s / (samples[-1].t_s - samples[0].t_s), 1000 * worst_s, progress.trouble


def _recorded(profile: str, sensor: str, gpus: int, interval_s: float) -> list[Sample]:
    clock = VirtualClock()
    node = SimulatedNode(gpus=gpus, sensor=PRESETS[sensor])
    device = SimulatedDevice(clock, SimulatedJob(profile=profiles.load(profile), jitter=0.01), node, seed=1)
    limits = device.limits()
    arrival_w = device.gpus[0].cap_range.default_w
    samples = []
    for share in (1.0, 0.8, 0.7):
        for gpu in device.gpus:
            limits.set_limit_w(gpu.uuid, round(share * arrival_w))
        end_s = clock.now() + _STRETCH_S
        while clock.now() < end_s:
            clock.wait_until(clock.now() + interval_s)
            samples.append(Sample(t_s=clock.now(), readings=device.read(), steps=None))
    return samples


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
