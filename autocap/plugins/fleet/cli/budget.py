"""`autocap budget`: holds one, speaks to the one that runs on this machine, and says what one would do."""

import argparse
import math
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from autocap.cli import options
from autocap.cli.completion import offer
from autocap.cli.settings import take
from autocap.config import values
from autocap.config.option import Record, options_of, record_from
from autocap.errors import AutocapError, PeerLost, UsageError
from autocap.job.invoking_user import invoking_user
from autocap.plugins.fleet.budget import protocol
from autocap.plugins.fleet.budget.connection import SOCKET, A, call, holder_paths, require_none, socket_paths
from autocap.plugins.fleet.config import (
    UNIFORM,
    BudgetConfig,
    BudgetOptions,
    PlanConfig,
    Policy,
    Printed,
    holdable,
)
from autocap.plugins.fleet.openadr.source import VtnSource
from autocap.text import beneath, columns, did_you_mean, encoding_of, note, put, put_json

if TYPE_CHECKING:
    from autocap.reports.figures.model import Picture

WORDS = {"set": 1, "weight": 2, "status": 0, "watch": 0, "end": 0}  # and how many words stand behind each
_COMMAND = "command:"
_EVERY_S = 1.0
_HOME_AND_CLEAR = "\x1b[H\x1b[J"


class Budget:
    """Hold a power budget on this machine: share WATTS among the jobs that compute on its GPUs, tuned or not, until it
    is ended; then the limits found are back. `set`, `weight`, `status`, `watch` and `end` speak to the one that
    runs.

    With --simulate, say what budgets would do to planned jobs, and touch no device. JOBS.csv has a row a job:
    name,arrive_s,work_s,devices,curve and perhaps weight; work_s is how long the job takes without a budget. A curve is
    a profile's name, such as tesla-v100/resnet50, or one of --curves.
    """

    is_session = False

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.usage = (
            "autocap budget WATTS [options]\n"
            "       autocap budget set WATTS | weight PID W | status [--json] | watch | end\n"
            "       autocap budget --simulate JOBS.csv [--budget LIST] [--curves FILE] [--plots] [--json]"
        )
        spoken = parser.add_argument(
            "words", metavar="WATTS", nargs="*", help="how many there are, or a word to the budget that runs"
        )
        offer(spoken, lambda: list(WORDS))
        options.declare(parser, "budget", BudgetOptions)

    def run(self, args: argparse.Namespace) -> int:
        if "simulate" in args:
            _refuse(args, "--simulate", BudgetConfig, VtnSource, but=("policy", "out" if "plots" in args else ""))
            if args.words:
                raise UsageError(f"--simulate touches no device, and takes no word '{args.words[0]}'; see --budget")
            from autocap.cli.session import be_the_user

            be_the_user(args.typed)
            take(args, "budget", [PlanConfig])
            _simulate(record_from(PlanConfig, "budget", vars(args)), vars(args).get("out", Path()))
            return 0
        _refuse(args, "a budget without --simulate", PlanConfig, but=("policy", "json"))
        word = args.words[0] if args.words else ""
        if word in WORDS:
            return _speak(args, word, args.words[1:])
        if len(args.words) > 1:
            raise UsageError(f"'{args.words[1]}' is one word too many; give the watts alone")
        take(args, "budget", [BudgetConfig, VtnSource])
        if not args.words and "schedule" not in args:
            raise UsageError("the watts are missing; write `autocap budget WATTS`, or --simulate JOBS.csv")
        return _begin(budget_config(args, _watts(word) if args.words else None), args.typed)


def budget_config(args: argparse.Namespace, watts: float | None) -> BudgetConfig:
    """The budget that parsed options mean. Raises UsageError for what the command line alone shows to be wrong."""
    given = vars(args)
    made = record_from(
        BudgetConfig, "budget", given, watts=watts, policy=_policy(given) or Policy.FAIR, openadr=_openadr(args)
    )
    holdable(made.device)
    if made.job is not None and made.nodes is None:
        raise UsageError(f"--job {made.job} is of a job on several nodes; add --nodes, or drop it")
    if made.schedule is None or made.schedule.startswith(_COMMAND):
        return made
    return replace(made, schedule=str(Path(made.schedule).absolute()))


def _refuse(args: argparse.Namespace, of: str, *records: type[Record], but: tuple[str, ...] = ()) -> None:
    """Raises UsageError for an option of these records that was given."""
    for option in (option for record in records for option in options_of(record, "budget")):
        if option.keyword in args and option.keyword not in but:
            raise UsageError(f"{option.flag} has no meaning for {of}; leave it out")


def _watts(text: str) -> float:
    watts = values.number_or_none(text)
    if watts is None:
        meant = did_you_mean(text, WORDS)
        raise UsageError(f"{values.shown(text)} is no budget{meant}; give watts, or one of {', '.join(WORDS)}")
    if not 1 <= watts <= 1e9:
        raise UsageError(f"a budget of {watts:g} W is none; give 1 to 1000000000 W")
    return watts


def _pid(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 0):
        raise UsageError(f"{values.shown(text)} is no PID; give that of a job, as `autocap budget status` shows it")
    return int(text)


def _weight(text: str) -> float:
    weight = values.number_or_none(text)
    if weight is None or not protocol.LEAST_WEIGHT <= weight <= protocol.MOST_WEIGHT:
        raise UsageError(
            f"{values.shown(text)} is no weight; give {protocol.LEAST_WEIGHT:g} to {protocol.MOST_WEIGHT:g}, 1 "
            f"being usual"
        )
    return weight


def _policy(given: Mapping[str, object]) -> Policy | None:
    found = given.get("policy")
    if not isinstance(found, tuple):
        return None
    if len(found) > 1 or found[0] not in list(Policy):
        raise UsageError(f"--policy {','.join(found)} is of --simulate; choose one of {', '.join(Policy)}")
    return Policy(found[0])


def _speak(args: argparse.Namespace, word: str, rest: list[str]) -> int:
    _refuse(args, f"`autocap budget {word}`", BudgetConfig, VtnSource, but=("policy",))
    policy = _policy(vars(args))
    if len(rest) > WORDS[word] or (len(rest) < WORDS[word] and policy is None):
        wanted = {"set": "WATTS", "weight": "the PID of a job and its weight"}.get(word, "nothing")
        raise UsageError(f"`autocap budget {word}` is followed by {wanted}")
    if "json" in args and word != "status":
        raise UsageError("--json is of `autocap budget status`; leave it out")
    if policy is not None and word != "set":
        raise UsageError("--policy is of a budget that begins, or of `set`; leave it out")
    match word:
        case "set":
            _ask(protocol.Change(watts=_watts(rest[0]) if rest else None, policy=policy), protocol.Done)
        case "weight":
            _ask(protocol.Weigh(pid=_pid(rest[0]), weight=_weight(rest[1])), protocol.Done, socket_paths())
        case "status":
            take(args, "budget", [Printed])
            standing = _ask(protocol.Ask(), protocol.Standing)
            if vars(args).get("json", False):
                put_json(asdict(standing))
            else:
                put(*lines(standing))
        case "watch":
            _watch()
        case _:
            _ask(protocol.End(), protocol.Done)
    return 0


def _ask(request: protocol.Request, kind: type[A], paths: Sequence[Path] | None = None) -> A:
    """What who holds the budget answers. Raises AutocapError."""
    with closing(call(paths or holder_paths())) as there:
        return there.ask(request, kind)


def _watch() -> None:
    """How it stands, every second, until it ends or somebody presses ^C. Raises AutocapError where none runs."""
    with closing(call(holder_paths())) as there:
        while True:
            try:
                standing = there.ask(protocol.Ask(), protocol.Standing)
            except PeerLost:
                note("the budget has ended, or its manager is started again")
                return
            if sys.stdout.isatty():
                beneath(sys.stdout).write(_HOME_AND_CLEAR)
            put(*lines(standing))
            time.sleep(_EVERY_S)


def lines(standing: protocol.Standing) -> list[str]:
    """A table of the jobs below what all have."""
    power = "not known" if standing.power_w is None else f"{standing.power_w:.0f} W"
    found = [
        f"budget {standing.budget_w:.0f} W ({standing.policy}), drawn {power}, reserved {standing.reserved_w:.0f} W, "
        f"not given away {standing.room_w:.0f} W",
    ]
    found += standing.follows
    if standing.short_w > 0:
        names = ", ".join(standing.pause)
        found.append(
            f"the lowest caps exceed the budget by {standing.short_w:.0f} W; pause {names}, or raise the budget"
        )
    rows = [
        ("job", "GPUs", "cap W", "up to W", "drawn W", "slowdown %", "±", "weight", "tuned"),
        *map(_row, standing.jobs),
    ]
    if any(job.node is not None for job in standing.jobs):
        nodes = ["node", *(job.node or "" for job in standing.jobs)]
        longest = max(map(len, nodes))
        rows = [(f"{node.ljust(longest)}  {row[0]}", *row[1:]) for node, row in zip(nodes, rows, strict=True)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    found += ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]
    found += [f"{job.name}: {job.doubt}" for job in standing.jobs if job.doubt is not None]
    found += [_beyond(job) for job in standing.jobs if job.slowdown > (job.most_slowdown or math.inf)]
    found.append(f"{len(standing.free)} GPUs are free, each at its lowest cap")
    return [*found, *standing.failed]


def _beyond(job: protocol.JobStanding) -> str:
    """Of a job that is slower than its tuner allows."""
    return (
        f"{job.name}: its tuner allows {100 * (job.most_slowdown or 0):g} % of slowdown; the budget and that cannot "
        "both hold"
    )


def _row(job: protocol.JobStanding) -> tuple[str, ...]:
    return (
        job.name,
        str(len(job.devices)),
        f"{job.cap_w:.0f}",
        f"{job.cap_w if job.ceiling_w is None else job.ceiling_w:.0f}",
        "-" if job.draw_w is None else f"{job.draw_w:.0f}",
        f"{100 * job.slowdown:.1f}",
        f"{100 * job.slowdown_stderr:.1f}",
        f"{job.weight:g}",
        "yes" if job.tuned else "no",
    )


def _openadr(args: argparse.Namespace) -> VtnSource | None:
    """Raises UsageError for a VTN that cannot be asked so."""
    if "openadr" in args:
        return record_from(VtnSource, "budget", vars(args))
    for option in options_of(VtnSource, "budget"):
        if option.keyword in args:
            raise UsageError(f"{option.flag} has no meaning without --openadr; add the URL of a VTN")
    return None


def _begin(config: BudgetConfig, typed: Sequence[str]) -> int:
    """Hold it until it ends."""
    if options.observing():
        raise UsageError("AUTOCAP_OBSERVE is set, under which no limit is; unset it to hold a budget")
    from autocap.job.blas_threads import one_thread

    require_none()
    _part_under_sudo(config, typed)
    with one_thread():
        from autocap.plugins.fleet.manager.opening import manage
        from autocap.plugins.fleet.manager.supervising import supervised
        from autocap.plugins.fleet.multinode.node_allocator import hold, node_command
        from autocap.plugins.fleet.nodes.transport import reached_by
    if config.nodes is None:
        return supervised(lambda parent_fd, resumed: manage(config, parent_fd, resumed))
    transport, address = reached_by(config.nodes)
    names = transport.nodes(address, config.job).nodes
    reach = transport.carrier(address, config.job, driver=None, agent=node_command(config)).reopen
    if reach is None:
        raise UsageError(f"--nodes {config.nodes} cannot start anything on nodes that are named; hold one on each")
    return supervised(lambda parent_fd, resumed: hold(config, names, reach, parent_fd, resumed))


def _part_under_sudo(config: BudgetConfig, typed: Sequence[str]) -> None:
    """Under sudo, be the user from here on, beside a keeper that has the socket and the state as well."""
    from autocap.cli.session import refuse_nodes, start
    from autocap.limits.keeper.charge import BudgetFiles, Charge
    from autocap.plugins.fleet.manager.finding import WORKER_VARIABLES
    from autocap.plugins.fleet.manager.supervising import STATE
    from autocap.wire.listening import gid_of

    user = invoking_user()
    if user is None:
        return
    refuse_nodes(config.nodes)
    group = None if config.group is None else gid_of(config.group)
    files = BudgetFiles(socket=SOCKET, state=STATE, group=group, worker_variables=tuple(sorted(WORKER_VARIABLES)))
    charge = Charge.of(user, device=config.device, gpus=config.gpus, node_power=config.node_power, budget=files)
    start(user, charge, typed)


def _simulate(config: PlanConfig, folder: Path) -> None:
    """Say what budgets would do to the jobs of a file. folder: where it is drawn. Raises AutocapError."""
    from autocap.plugins.fleet.budget.job_file import published, read_curves, read_jobs
    from autocap.plugins.fleet.budget.plan import Plan, uniform
    from autocap.plugins.fleet.reports import plan as report
    from autocap.reports import text

    known = published() | ({} if config.curves is None else read_curves(config.curves))
    plan = Plan(jobs=read_jobs(config.jobs, known), curves=known)
    asked_w, planned = plan.asked_w, list[report.PlannedBudget]()
    for budget_w in (budget.of(asked_w) for budget in config.budgets):
        for rule in config.rules:
            outcome, share = plan.play(budget_w, uniform if rule == UNIFORM else Policy(rule)), budget_w / asked_w
            planned.append(report.PlannedBudget(budget_w=budget_w, fraction=share, rule=rule, outcome=outcome))
    if config.plots:
        _draw(folder, report.picture(planned))
    if config.json:
        put_json(report.as_json(planned))
    else:
        made = report.document(planned, len(plan.jobs), asked_w)
        put(*text.lines(made, columns(sys.stdout), encoding_of(sys.stdout)))


def _draw(folder: Path, picture: "Picture") -> None:
    from autocap.reports.figures import svg
    from autocap.runlog.output_directory import OutputDirectory

    try:
        with closing(OutputDirectory(folder)) as place:
            place.put("budget.svg", svg.file(picture))
    except OSError as error:
        raise AutocapError(f"no plots can be put into {folder}: {error.strerror}; pass another --out") from error
    note(f"drew {folder / 'budget.svg'}")
