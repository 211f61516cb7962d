"""Opens what a site needs, and lets it run: the nodes, the record, the socket."""

import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime

from autocap import __version__, events
from autocap.clock import MonotonicClock
from autocap.errors import AutocapError
from autocap.limits.state_dir import StateDir, default_path
from autocap.limits.times import SITE_ENDS_S
from autocap.plugins.fleet import events as budget
from autocap.plugins.fleet.budget.calling import SITE_SOCKET
from autocap.plugins.fleet.budget.schedule import read_schedule
from autocap.plugins.fleet.config import BudgetConfig
from autocap.plugins.fleet.manager.course import course_of
from autocap.plugins.fleet.manager.loop import Signals, ends_at
from autocap.plugins.fleet.manager.opening import export, first_watts, listening_at, record_of, report_on
from autocap.plugins.fleet.manager.reception import Reception
from autocap.plugins.fleet.manager.spoken import Spoken
from autocap.plugins.fleet.manager.state import SITE_STATE, forget, load
from autocap.plugins.fleet.nodes.aftermath import Reopen
from autocap.plugins.fleet.openadr.credentials import find_credentials
from autocap.plugins.fleet.site.nodes import Nodes
from autocap.plugins.fleet.site.parts import Parts
from autocap.plugins.fleet.site.site import Site
from autocap.reports import html
from autocap.session.recorder import Recorder
from autocap.text import note, printable_json
from autocap.wire.codec import encode

_NODE = (sys.executable, "-P", "-m", "autocap.plugins.fleet.site.node")


def node_command(config: BudgetConfig) -> tuple[str, ...]:
    """What runs on each node: the words, policy and record of the budget are the site's."""
    of_node = BudgetConfig(
        watts=None,
        gpus=config.gpus,
        actuator=config.actuator,
        node_power=config.node_power,
        floor_w=config.floor_w,
        group=config.group,
    )
    return (*_NODE, "--config", printable_json(encode(of_node)))


def hold(plan: BudgetConfig, names: Sequence[str], reach: Reopen, leash: int, resumed: bool) -> int:
    """The whole life of a site; its exit status. names, reach: of the nodes, and how they are. leash, resumed: as
    `manager.opening.manage` has them.

    Raises AutocapError where it cannot begin; by then nothing is set on any node."""
    clock, state_dir = MonotonicClock(), default_path()
    StateDir(state_dir).close()
    html.stylesheet()
    with ExitStack() as stack:
        signals = stack.enter_context(Signals())
        before = load(state_dir, SITE_STATE) if resumed else None
        began_wall_s = time.time() if before is None else before.began_wall_s
        schedule = None if plan.schedule is None else read_schedule(plan.schedule, began_wall_s)
        if plan.openadr is not None and not resumed:
            find_credentials(plan.openadr.credentials)
        watts = first_watts(plan, schedule, before)
        policy = plan.policy if before is None else before.policy
        parts = Parts(watts, policy=policy)
        nodes = Nodes(reach, names, parts, clock.now, time.sleep)
        directory = record_of(plan, resumed, stack)
        recorder = Recorder(directory, Spoken())
        course = course_of(
            plan, watts, schedule, before, began_wall_s, lambda text: recorder.warn(clock.now(), text), stack
        )
        site = Site(
            clock=clock,
            nodes=nodes,
            shares=parts,
            course=course,
            policy=policy,
            directory=str(directory.path.absolute()),
            recorder=recorder,
            state=SITE_STATE,
            ends_s=ends_at(plan.for_s, began_wall_s, clock.now()),
            state_dir=state_dir,
            leash=leash,
        )
        status, why, has_begun = 1, "internal fault", False
        try:
            site.begin(signals, patient=before is not None)
            recorder.event(_started(nodes, clock.now(), watts, policy, plan.schedule, before is not None))
            has_begun = True
            export(plan, lambda: site.latest, stack)
            with listening_at(state_dir, plan.group, SITE_SOCKET) as listener:
                reception = Reception(listener, site, clock.now)
                stack.callback(reception.close)
                count = sum(len(found.gpus) for found in nodes.found.values())
                of = f"{count} GPUs of {len(nodes.names)} nodes"
                note(f"{watts:g} W are shared among {of}; the record is {directory.path}")
                why, status = site.run(reception, signals), 0
        except AutocapError as error:
            why = str(error)
            if not has_begun:
                raise
            recorder.warn(clock.now(), f"the budget ends: {why}")
        except Exception as error:
            why = recorder.reason(error)
            raise
        finally:
            nodes.end(SITE_ENDS_S)
            forget(state_dir, SITE_STATE)
            if has_begun:
                _record_end(recorder, nodes, clock.now(), why)
                report_on(directory, recorder)
    return status


def _started(
    nodes: Nodes, t_s: float, watts: float, policy: str, schedule: str | None, resumed: bool
) -> budget.BudgetStarted:
    found = [nodes.found[name] for name in nodes.names]
    meters = [one.node_power for one in found if one.node_power is not None]
    return budget.BudgetStarted(
        t_s=t_s,
        autocap_version=__version__,
        started_at=datetime.now().astimezone().isoformat(timespec="seconds"),
        pid=os.getpid(),
        budget_w=watts,
        policy=policy,
        gpus=tuple(gpu for one in found for gpu in one.gpus),
        original_w=tuple(w for one in found for w in one.original_w),
        emulated=any(one.emulated for one in found),
        driver=found[0].driver,
        node=meters[0] if meters else None,
        schedule=schedule,
        resumed=resumed,
    )


def _record_end(recorder: Recorder, nodes: Nodes, t_s: float, why: str) -> None:
    """What became of the limits, as the nodes have said; of one that has said nothing it is not known."""
    for name, restored in nodes.restored.items():
        for one in restored:
            recorder.event(events.LimitRestored(t_s=t_s, uuid=one.uuid, final=one.final_w, restored=one.restored))
            if one.note is not None:
                recorder.warn(t_s, f"{name}: {one.note}")
    for text in nodes.notes:
        recorder.warn(t_s, text)
    for name in nodes.names:
        if name not in nodes.restored:
            for gpu in nodes.found[name].gpus:
                recorder.event(events.LimitRestored(t_s=t_s, uuid=gpu.uuid, final=None, restored=None))
            recorder.warn(t_s, f"{name} has not said that its limits are back; it puts them back by itself")
    recorder.event(events.RunEnded(t_s=t_s, ended_because=why))
