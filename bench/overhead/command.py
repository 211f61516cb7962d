"""python -m bench overhead: what autocap itself costs, measured."""

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import median, quantiles

from autocap.clock import VirtualClock
from autocap.devices.model import profiles
from autocap.devices.model.logged_sensors import LOGGED
from autocap.devices.model.sensor import PRESETS
from autocap.devices.simulated.device import SimulatedDevice, SimulatedJob, SimulatedNode
from autocap.events import State
from autocap.progress.period.progress import PeriodProgress
from autocap.records import Sample
from bench.overhead import call_cost, controller_cost, helper_cost, step_cost

_PARTS = ("detector", "hook", "calls", "controller", "helper")
_STRETCH_S = 60.0  # at each of the limits
_SENSORS = ("v100", "a100", "laptop")  # that update every 20, 100 and 515 ms
_STATES = (State.WAITING, State.BASELINE, State.SEARCHING, State.CONFIRMING, State.HOLDING)
_MOST_PCT, _MOST_HELD_PCT = {1: 1.0, 8: 3.0}, {1: 0.2, 8: 0.6}  # of a core, by the number of GPUs
_MOST_BYTES = 100e6
_LEAST_S = 10.0
_MOST_ADDED_MS, _MOST_HELPER_PCT, _MOST_HELPER_MB = 5.0, 0.05, 30.0


def main(argv: Sequence[str]) -> int:
    """Measure and print; 1 where the controller or the helper costs more than it may."""
    parser = argparse.ArgumentParser(prog="python -m bench overhead", description=__doc__)
    parser.add_argument("--parts", default=",".join(_PARTS), help=f"of {', '.join(_PARTS)} (default: all)")
    parser.add_argument("--gpus", type=int, default=8, help="of the detector's simulated node (default: 8)")
    parser.add_argument("--sample-hz", type=float, default=50.0, help="of the detector (default: 50)")
    parser.add_argument(
        "--profile", default="tesla-v100/resnet50", help="of the detector (default: tesla-v100/resnet50)"
    )
    parser.add_argument(
        "--sensors", default=",".join(_SENSORS), help=f"of the controllers' cards (default: {','.join(_SENSORS)})"
    )
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="that each of them holds a cap, and of calls (default: 60)"
    )
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
    sensors = args.sensors.split(",")
    if args.seconds < _LEAST_S:
        parser.error(f"--seconds {args.seconds:g}: a cap is to be held for {_LEAST_S:g} s or more")
    if set(sensors) - {*PRESETS, *LOGGED}:
        parser.error(f"--sensors {args.sensors}: choose of {', '.join((*PRESETS, *LOGGED))}")
    status = _print_helper(args.seconds) if "helper" in parts else 0
    return (_print_controller(sensors, args.seconds) if "controller" in parts else 0) or status


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
    print(f"\nCounting backward passes, steps of {cost.step_s * 1e3:.1f} ms, {cost.pairs} pairs of steps\n")
    ratios = (
        ("wall time, counted to not counted", cost.wall),
        ("processor time, counted to not counted", cost.processor),
        ("processor time, not counted to not counted", cost.control),
    )
    for name, (ratio, error) in ratios:
        print(f"  {name:44} {ratio:.5f} +- {error:.5f}")
    print(f"  {'processor time of a call, nanoseconds':44} {cost.call_ns[0]:7.0f} +- {cost.call_ns[1]:.0f}")
    print(f"  {'as measured when counting begins':44} {cost.own_ns:7.0f}")


def _print_helper(seconds: float) -> int:
    """1 where it costs more than it may."""
    cost = helper_cost.measure(seconds)
    print(f"\nThe helper, with one client that beats every half second for {seconds:g} s, and with {cost.clients}\n")
    direct_ms, through_ms = median(cost.direct_ms), median(cost.through_ms)
    words = f"{direct_ms:.2f} directly, {through_ms:.2f} through it, {cost.added_ms:+.2f}"
    rows = [
        ("a set, median, ms", words, cost.added_ms <= _MOST_ADDED_MS),
        ("the helper, % of a core", f"{cost.core_pct:.3f}", cost.core_pct <= _MOST_HELPER_PCT),
        ("its watchdog, % of a core", f"{cost.watchdog_pct:.3f}", True),
        ("the helper, MB", f"{cost.rss_mb:.1f}", cost.rss_mb <= _MOST_HELPER_MB),
        ("its watchdog, MB", f"{cost.watchdog_mb:.1f}", True),
    ]
    for op in ("hello", "devices"):
        taken_ms = [one for name, one in cost.crowd if name == op]
        times = f"median {median(taken_ms):.2f}, p99 {quantiles(taken_ms, n=100)[-1]:.2f}, of {len(taken_ms)}"
        rows.append((f"`{op}` of {cost.clients} clients, ms", times, True))
    for name, text, enough in rows:
        print(f"  {name:36} {text}" + ("" if enough else "  more than aimed at"))
    return int(not all(enough for _, _, enough in rows))


def _print_controller(sensors: Sequence[str], hold_s: float) -> int:
    """1 where it costs more than it may."""
    print(
        "\nThe controller in each of its states, % of a core and samples a second; the emulated library's own time is"
    )
    print(f"left out, so what real NVML calls cost is not in it. A cap was held for {hold_s:g} s.\n")
    states = "".join(f"{state.value.lower():>14}" for state in _STATES)
    print(f"  sensor mode   GPUs{states}  peak MB  watchdog MB, %  start s   kB/h")
    modes, gpus = ("run", "attach") * len(_MOST_PCT), sorted([*_MOST_PCT, *_MOST_PCT])
    status = 0
    for sensor in sensors:
        with ThreadPoolExecutor(len(modes)) as pool:  # processor time, which others at the same time do not add to
            for cost in pool.map(partial(controller_cost.measure, sensor, hold_s), modes, gpus):
                status |= _print_cost(cost)
    return status


def _print_cost(cost: controller_cost.ControllerCost) -> bool:
    """Whether it is more than is aimed at."""
    spent = {one.state: one for one in cost.states}
    too_much = [state.value.lower() for state, one in spent.items() if one.core_pct > _most_pct(cost.gpus, state)]
    too_much += ["memory"] if cost.peak_bytes > _MOST_BYTES else []
    cells = "".join(f"{_cell(spent.get(state)):>14}" for state in _STATES)
    print(
        f"  {cost.sensor:7}{cost.mode:7}{cost.gpus:4}{cells}{cost.peak_bytes / 1e6:9.1f}"
        f"{cost.watchdog_bytes / 1e6:10.1f}{cost.watchdog_pct:6.2f}{cost.start_s:9.2f}"
        f"{cost.held_bytes_per_hour / 1e3:7.0f}" + (f"  more than aimed at: {', '.join(too_much)}" if too_much else ""),
        flush=True,
    )
    return bool(too_much)


def _most_pct(gpus: int, state: State) -> float:
    return (_MOST_HELD_PCT if state is State.HOLDING else _MOST_PCT)[gpus]


def _cell(cost: controller_cost.StateCost | None) -> str:
    return "-" if cost is None else f"{cost.core_pct:.2f} {cost.sample_hz:5.1f}"


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
