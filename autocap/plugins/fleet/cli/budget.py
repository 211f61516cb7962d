"""`autocap budget`."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from autocap.cli.completion import offer
from autocap.cli.options import observing
from autocap.config import ACTUATOR, DEVICE, NODE_POWER, values
from autocap.errors import UsageError
from autocap.job.invoking_user import invoking_user
from autocap.plugins.fleet.cli.plan import POLICIES, USUAL, amounts, policies, simulate
from autocap.text import did_you_mean

if TYPE_CHECKING:
    from autocap.plugins.fleet.manager.plan import BudgetPlan
    from autocap.plugins.fleet.openadr.source import VtnSource

WORDS = {"set": 1, "weight": 2, "status": 0, "watch": 0, "end": 0}  # and how many words stand behind each
_SHARED = ("fair", "throughput", "energy")
# Which options are whose: of a budget that begins, of a word to one that runs, of a plan.
_BEGINS = (
    "gpus",
    "device",
    "actuator",
    "node_power",
    "for_s",
    "schedule",
    "floor",
    "out",
    "force",
    "group",
    "prometheus",
    "openadr",
    "openadr_program",
    "openadr_targets",
    "openadr_credentials",
    "openadr_every",
    "nodes",
    "job",
)
_PLANS = ("budget", "curves", "plots")
_COMMAND = "command:"
_USUAL = USUAL.replace("%", "%%")  # as argparse has it


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
        shared = parser.add_argument(
            "--policy", metavar="NAME", type=policies,
            help="how they are shared: fair (equal slowdowns), throughput or energy (default: fair; of --simulate a "
            "list, uniform as well, default: all)",
        )  # fmt: skip
        offer(shared, lambda: POLICIES)
        parser.add_argument("--json", action="store_true", help="of status and --simulate: print it as JSON")
        began = parser.add_argument_group("a budget that begins")
        began.add_argument(
            "--gpus", metavar="LIST", type=values.gpu_list,
            help="indices, ranges or UUIDs, by comma (default: all whose limits can be set)",
        )  # fmt: skip
        began.add_argument("--device", metavar="NAME", type=values.word, help="auto or nvml (default: auto)")
        began.add_argument(
            "--actuator", metavar="NAME", type=values.actuator,
            help="who sets the limits: auto, direct, helper or zeusd (default: auto)",
        )  # fmt: skip
        began.add_argument(
            "--node-power", metavar="SOURCE", type=values.node_power,
            help="the budget is the whole machine's, whose power is read: WATTS, rapl, ipmi, slurm or command:CMD",
        )  # fmt: skip
        began.add_argument(
            "--for", dest="for_s", metavar="S", type=values.positive("seconds"), help="end it after so many seconds"
        )
        began.add_argument(
            "--schedule", metavar="SOURCE", type=values.word,
            help="rows of time,watts: a file, or command:CMD, whose output is read; SIGHUP reads it again",
        )  # fmt: skip
        began.add_argument(
            "--floor", metavar="W", type=values.positive("watts"), help="no cap below that (default: the GPU's lowest)"
        )
        began.add_argument("--out", metavar="DIR", type=values.path, help="where it is recorded")
        began.add_argument("--force", action="store_true", help="replace a record that is there")
        began.add_argument("--group", metavar="NAME", type=values.word, help="who may register jobs, besides us")
        began.add_argument("--prometheus", metavar="[ADDRESS:]PORT", type=values.endpoint, help="export metrics there")
        demand = parser.add_argument_group("events of a VTN (OpenADR 3), which lower it")
        demand.add_argument(
            "--openadr",
            metavar="URL",
            type=values.word,
            help="of the VTN, such as https://vtn.example.com/openadr3/3.1.0",
        )
        demand.add_argument(
            "--openadr-program", metavar="NAME", type=values.word, help="events of this program alone (default: of all)"
        )
        demand.add_argument(
            "--openadr-targets", metavar="LIST", type=values.word,
            help="names that the VTN has given to us, by comma (default: none)",
        )  # fmt: skip
        demand.add_argument(
            "--openadr-credentials", metavar="FILE", type=values.path,
            help="client_id and client_secret, in TOML that its owner alone may read (default: OPENADR_CLIENT_ID and "
            "OPENADR_CLIENT_SECRET of the environment)",
        )  # fmt: skip
        demand.add_argument(
            "--openadr-every", metavar="S", type=values.positive("seconds"),
            help="ask every so many seconds, 1 to 3600 (default: 10)",
        )  # fmt: skip
        began.add_argument(
            "--nodes", metavar="WHERE", type=values.nodes,
            help="one budget over the GPUs of several nodes: slurm (those of the job around this command, or of "
            "--job), or ray[:ADDRESS] (all of a cluster's that have GPUs)",
        )  # fmt: skip
        began.add_argument("--job", metavar="ID", type=values.job_id, help="with --nodes slurm: the Slurm job")
        planned = parser.add_argument_group("planned jobs")
        planned.add_argument("--simulate", metavar="JOBS.csv", type=values.path, help="the jobs")
        planned.add_argument(
            "--budget", metavar="LIST", type=amounts,
            help=f"watts, or percentages of what the jobs ask for at most, by comma (default: {_USUAL})",
        )  # fmt: skip
        planned.add_argument(
            "--curves", metavar="FILE.csv", type=values.path, help="columns curve,cap_w,power_w,time_s"
        )
        planned.add_argument("--plots", action="store_true", help="draw it as budget.svg into --out, or here")

    def run(self, args: argparse.Namespace) -> int:
        if args.simulate is not None:
            _refuse(args, tuple(name for name in _BEGINS if name != "out" or not args.plots), "--simulate")
            if args.words:
                raise UsageError(f"--simulate touches no device, and takes no word '{args.words[0]}'; see --budget")
            budgets, rules = args.budget or amounts(USUAL), args.policy or POLICIES
            plots = (args.out or Path()) if args.plots else None
            simulate(args.simulate, budgets, rules, curves=args.curves, plots=plots, as_json=args.json)
            return 0
        _refuse(args, _PLANS, "a budget without --simulate")
        if not args.words and args.schedule is None:
            raise UsageError("the watts are missing; write `autocap budget WATTS`, or --simulate JOBS.csv")
        word = args.words[0] if args.words else ""
        if word in WORDS:
            return _speak(args, word, args.words[1:])
        if len(args.words) > 1:
            raise UsageError(f"'{args.words[1]}' is one word too many; give the watts alone")
        return _begin(args, _watts(word) if args.words else None)


def _refuse(args: argparse.Namespace, options: tuple[str, ...], of: str) -> None:
    for option in options:
        if getattr(args, option) not in (None, False):
            flag = "--for" if option == "for_s" else f"--{option.replace('_', '-')}"
            raise UsageError(f"{flag} has no meaning for {of}; leave it out")


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
    from autocap.plugins.fleet.budget.words import LEAST_WEIGHT, MOST_WEIGHT

    weight = values.number_or_none(text)
    if weight is None or not LEAST_WEIGHT <= weight <= MOST_WEIGHT:
        raise UsageError(f"{values.shown(text)} is no weight; give {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}, 1 being usual")
    return weight


def _policy(args: argparse.Namespace) -> str | None:
    if args.policy is None:
        return None
    if len(args.policy) > 1 or args.policy[0] not in _SHARED:
        raise UsageError(f"--policy {','.join(args.policy)} is of --simulate; choose one of {', '.join(_SHARED)}")
    return str(args.policy[0])


def _speak(args: argparse.Namespace, word: str, rest: list[str]) -> int:
    from autocap.plugins.fleet.cli import changes as budget_words

    _refuse(args, _BEGINS, f"`autocap budget {word}`")
    if len(rest) > WORDS[word] or (len(rest) < WORDS[word] and args.policy is None):
        wanted = {"set": "WATTS", "weight": "the PID of a job and its weight"}.get(word, "nothing")
        raise UsageError(f"`autocap budget {word}` is followed by {wanted}")
    if args.json and word != "status":
        raise UsageError("--json is of `autocap budget status`; leave it out")
    if args.policy is not None and word != "set":
        raise UsageError("--policy is of a budget that begins, or of `set`; leave it out")
    match word:
        case "set":
            budget_words.change(_watts(rest[0]) if rest else None, _policy(args))
        case "weight":
            budget_words.weigh(_pid(rest[0]), _weight(rest[1]))
        case "status":
            budget_words.show(as_json=args.json)
        case "watch":
            budget_words.watch()
        case _:
            budget_words.end()
    return 0


def _openadr(args: argparse.Namespace) -> "VtnSource | None":
    """Raises UsageError for a VTN that cannot be asked so."""
    from autocap.plugins.fleet.openadr.source import EVERY_S, VtnSource

    if args.openadr is None:
        for option in (name for name in _BEGINS if name.startswith("openadr_")):
            if getattr(args, option) is not None:
                raise UsageError(f"--{option.replace('_', '-')} has no meaning without --openadr; add the URL of a VTN")
        return None
    every_s = args.openadr_every or EVERY_S
    if not 1 <= every_s <= 3600:
        raise UsageError(f"--openadr-every {every_s:g} is out of range; give 1 to 3600 s")
    targets = [] if args.openadr_targets is None else args.openadr_targets.split(",")
    return VtnSource(
        url=args.openadr,
        program=args.openadr_program,
        targets=tuple(name.strip(" ") for name in targets if name.strip(" ")),
        credentials=None if args.openadr_credentials is None else str(args.openadr_credentials.absolute()),
        every_s=every_s,
    )


def _begin(args: argparse.Namespace, watts: float | None) -> int:
    """Hold it until it ends."""
    if observing():
        raise UsageError("AUTOCAP_OBSERVE is set, under which no limit is; unset it to hold a budget")
    kind = args.device or DEVICE
    if kind not in (DEVICE, "nvml"):
        why = {
            "emulated": "an emulated device is played by the session that tunes its job, and nobody else sets its caps "
            "(`make demo-budget` in a checkout shows one without a GPU)",
            "rapl": "the limit of a CPU package is that of all that runs on it, so it is no job's",
        }.get(kind.partition(":")[0], "its devices are not known by the processes that use them")
        raise UsageError(f"a budget cannot hold --device {kind}: {why}; choose nvml")
    source = args.schedule
    for option, given in (("--schedule", source), ("--node-power", args.node_power)):
        if given is not None and given.startswith(_COMMAND) and invoking_user() is not None:
            raise UsageError(f"{option} {given} would run as root under sudo; choose another, or run without sudo")
    openadr = _openadr(args)
    from autocap.job.blas_threads import one_thread

    with one_thread():
        from autocap.plugins.fleet.budget.shares import Policy
        from autocap.plugins.fleet.manager.opening import manage, require_none
        from autocap.plugins.fleet.manager.plan import BudgetPlan
        from autocap.plugins.fleet.manager.supervising import supervised
    plan = BudgetPlan(
        watts=watts,
        policy=Policy(_policy(args) or "fair"),
        gpus=args.gpus,
        actuator=args.actuator or ACTUATOR,
        node_power=args.node_power or NODE_POWER,
        for_s=args.for_s,
        schedule=source if source is None or source.startswith(_COMMAND) else str(Path(source).absolute()),
        floor_w=args.floor,
        out=args.out,
        force=args.force,
        group=args.group,
        prometheus=args.prometheus,
        openadr=openadr,
    )
    require_none()
    if args.nodes is not None:
        return _over_nodes(args, plan)
    if args.job is not None:
        raise UsageError(f"--job {args.job} is of --nodes slurm; add that, or leave it out")
    return supervised(lambda leash, resumed: manage(plan, leash, resumed))


def _over_nodes(args: argparse.Namespace, plan: "BudgetPlan") -> int:
    """The same over the GPUs of several nodes."""
    from autocap.job.blas_threads import one_thread

    if invoking_user() is not None:
        raise UsageError(
            f"--nodes {args.nodes} does not work under sudo; run it as the user whose job it is, with the helper on "
            "each node to set limits"
        )
    with one_thread():
        from autocap.plugins.fleet.manager.supervising import supervised
        from autocap.plugins.fleet.site.opening import hold
        from autocap.plugins.fleet.site.reach import reached
    if args.job is not None and args.nodes != "slurm":
        raise UsageError(f"--job {args.job} names a Slurm job; use --nodes slurm, or drop it")
    found = reached(args.nodes, args.job, plan)
    return supervised(lambda leash, resumed: hold(plan, found, leash, resumed))
