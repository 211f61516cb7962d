"""python -m bench overhead: what autocap itself costs, measured."""

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from autocap.clock import VirtualClock
from autocap.devices.model import profiles
from autocap.devices.model.sensor import PRESETS
from autocap.devices.simulated.device import SimulatedDevice, SimulatedJob, SimulatedNode
from autocap.progress.period.progress import PeriodProgress
from autocap.records import Sample
from bench.overhead import call_cost, controller_cost, step_cost

_PARTS = ("detector", "hook", "calls", "controller")
_STRETCH_S = 60.0  # at each of the limits
_MOST_PCT = {1: 1.0, 8: 3.0}  # of a core, by the number of GPUs
_MOST_BYTES = 100e6


def main(argv: Sequence[str]) -> int:
    """Measure and print; 1 where the controller costs more than it may."""
    parser = argparse.ArgumentParser(prog="python -m bench overhead", description=__doc__)
    parser.add_argument("--parts", default=",".join(_PARTS), help=f"of {', '.join(_PARTS)} (default: all)")
    parser.add_argument("--gpus", type=int, default=8, help="of the detector's simulated node (default: 8)")
    parser.add_argument("--sample-hz", type=float, default=50.0, help="of the detector (default: 50)")
    parser.add_argument(
        "--profile", default="tesla-v100/resnet50", help="of the detector (default: tesla-v100/resnet50)"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="for each controller, and for calls (default: 60)")
    args = parser.parse_args(argv)
    parts = args.parts.split(",")
    if set(parts) - set(_PARTS):
        parser.error(f"--parts {args.parts}: choose of {', '.join(_PARTS)}")
    if "detector" in parts:
        _print_detector(args.profile, args.gpus, args.sample_hz)
    if "hook" in parts:
        _print_hook()
    if "calls" in parts:
        _print_calls(args.seconds)
    return _print_controller(args.seconds) if "controller" in parts else 0


def _print_detector(profile: str, gpus: int, sample_hz: float) -> None:
    print("PeriodProgress, CPU per second of signal: learned at the limit found on arrival, followed at two caps")
    print(f"{gpus} GPUs, {sample_hz:g} samples/s, {_STRETCH_S:g} s at each limit\n")
    for sensor in ("v100", "a100", "average-1s"):
        spent_ms, worst_ms, trouble = detector_cost(profile, sensor, gpus, 1 / sample_hz)
        outcome = "followed to the end" if trouble is None else trouble
        print(f"  {sensor:12} {spent_ms:6.2f} ms a second, longest call {worst_ms:5.0f} ms; {outcome}")


def _print_hook() -> None:
    print("\nThe step hook, nanoseconds an optimiser step\n")
    for cost in step_cost.measure():
        print(f"  {cost.loop:28} {cost.plain_ns:8.0f} without, {cost.added_ns:+6.0f} with it")


def _print_calls(seconds: float) -> None:
    cost = call_cost.measure(seconds)
    print(f"\nCounting backward passes, steps of {cost.step_s * 1e3:.1f} ms, {cost.pairs} pairs of stretches\n")
    ratios = (
        ("wall time, counted to not counted", cost.wall),
        ("processor time, counted to not counted", cost.processor),
        ("processor time, not counted to not counted", cost.control),
    )
    for name, (ratio, error) in ratios:
        print(f"  {name:44} {ratio:.5f} +- {error:.5f}")
    print(f"  {'processor time of a call, nanoseconds':44} {cost.call_ns[0]:7.0f} +- {cost.call_ns[1]:.0f}")
    print(f"  {'as measured when counting begins':44} {cost.own_ns:7.0f}")


def _print_controller(seconds: float) -> int:
    """1 where it costs more than it may."""
    print(
        f"\nThe controller at {controller_cost.SAMPLE_HZ:g} samples/s, its first {seconds:g} s of tuning; the emulated"
    )
    print("library's own time is left out, so what real NVML calls cost is not in it\n")
    print(
        "  mode    GPUs  CPU s/min  % of a core  peak MB  watchdog MB  its CPU s  start CPU s  calls  (emulation CPU s)"
    )
    status = 0
    jobs = [(mode, gpus) for gpus in _MOST_PCT for mode in ("run", "attach")]
    with ThreadPoolExecutor(len(jobs)) as pool:  # processor time, which others at the same time do not add to
        costs = list(pool.map(lambda job: controller_cost.measure(job[0], job[1], seconds), jobs))
    for cost in costs:
        too_much = cost.core_pct > _MOST_PCT[cost.gpus] or cost.peak_bytes > _MOST_BYTES
        status |= too_much
        print(
            f"  {cost.mode:6}{cost.gpus:6}{60 * cost.cpu_s / seconds:11.2f}{cost.core_pct:13.2f}"
            f"{cost.peak_bytes / 1e6:9.1f}{cost.watchdog_bytes / 1e6:13.1f}{cost.watchdog_s:11.2f}"
            f"{cost.start_s:13.2f}{cost.calls:7}{cost.emulation_s:19.2f}"
            + (f"  more than {_MOST_PCT[cost.gpus]:g} % or {_MOST_BYTES / 1e6:g} MB" if too_much else "")
        )
    return status


def detector_cost(profile: str, sensor: str, gpus: int, interval_s: float) -> tuple[float, float, str | None]:
    """CPU milliseconds a second of signal, those of the longest call, and what kept it from following the period."""
    samples = _recorded(profile, sensor, gpus, interval_s)
    progress = PeriodProgress(PRESETS[sensor].info())
    spent_s, worst_s = 0.0, 0.0
    for sample in samples:
        begin_s = time.process_time()
        progress.marks(sample)
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
