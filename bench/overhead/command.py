"""python -m bench overhead: what autocap itself costs, measured."""

import argparse
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import median, quantiles

from autocap.events import State
from bench.overhead import controller_cost, helper_cost, step_cost

_PARTS = ("hook", "calls", "controller", "helper")
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
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="that each of them holds a cap, and of calls (default: 60)"
    )
    args = parser.parse_args(argv)
    parts = args.parts.split(",")
    if set(parts) - set(_PARTS):
        parser.error(f"--parts {args.parts}: choose of {', '.join(_PARTS)}")
    if "hook" in parts:
        _print_hook()
    if "calls" in parts:
        _print_calls(args.seconds)
    if args.seconds < _LEAST_S:
        parser.error(f"--seconds {args.seconds:g}: a cap is to be held for {_LEAST_S:g} s or more")
    status = _print_helper(args.seconds) if "helper" in parts else 0
    return (_print_controller(args.seconds) if "controller" in parts else 0) or status


def _print_hook() -> None:
    print("\nThe step hook, nanoseconds an optimiser step\n")
    for cost in step_cost.hook_costs():
        print(f"  {cost.loop:28} {cost.plain_ns:8.0f} without, {cost.added_ns:+6.0f} with it")


def _print_calls(seconds: float) -> None:
    cost = step_cost.call_cost(seconds)
    print(f"\nCounting backward passes, steps of {cost.step_us:.0f} us, counted for {cost.counted} s\n")
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


def _print_controller(hold_s: float) -> int:
    """1 where it costs more than it may."""
    print(
        "\nThe controller in each of its states, % of a core and samples a second; the emulated library's own time is"
    )
    print(f"left out, so what real NVML calls cost is not in it. A cap was held for {hold_s:g} s.\n")
    states = "".join(f"{state.value.lower():>14}" for state in _STATES)
    print(f"  sensor mode   GPUs{states}  peak MB  watchdog MB, %  start s   kB/h")
    modes, gpus = ("run", "attach") * len(_MOST_PCT), sorted([*_MOST_PCT, *_MOST_PCT])
    status = 0
    for sensor in _SENSORS:
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
