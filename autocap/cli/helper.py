"""`autocap helper`."""

import argparse
import os
import resource
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from autocap.cli import options
from autocap.cli.settings import take
from autocap.config import values
from autocap.config.option import CommandOption, record_from
from autocap.errors import UsageError
from autocap.limits.helper.protocol import Devices, Offer, Op, Status, socket_path
from autocap.text import put, put_json

_ACTIONS = ("serve", "status", "install", "uninstall")
_OF = {"socket": ("serve",), "policy": ("serve",), "group": ("serve", "install"), "json": ("status",)}
_OF["dry_run"] = ("install", "uninstall")
_DESCRIPTORS = 4096
_option = partial(CommandOption, "", commands=("helper",))


@dataclass(frozen=True, slots=True, kw_only=True)
class HelperConfig:
    """What `autocap helper` is told. socket: `None` for the usual one. policy: `None` for the usual file. group: `None`
    for the usual one of what is done."""

    socket: Annotated[Path | None, _option("--socket PATH", values.path, "of serve: where users connect")] = None
    policy: Annotated[
        Path | None,
        _option(
            "--policy FILE",
            values.path,
            "of serve: who may have what (default: /etc/autocap/policy.toml, where it is there)",
        ),
    ] = None
    group: Annotated[
        str | None,
        _option(
            "--group NAME",
            values.word,
            "who may connect besides root (default: of install gpupower, of serve nobody)",
        ),
    ] = None
    dry_run: Annotated[bool, _option("--dry-run", None, "of install and uninstall: only say what would be done")] = (
        False
    )
    json: Annotated[bool, _option("--json", None, "of status: print {socket, server, devices, leases}")] = False


class Helper:
    """Lend power limits to users who may not set them, or see who has which.

    `serve` is the service itself, to be run by root: by systemd, whose units `install` puts in place and `uninstall`
    removes, or in the foreground, as in a container. `status` shows what the service would lend to you, and what it
    has lent to whom. `autocap help docs/helper` has the policy and the protocol.
    """

    is_session = False

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.usage = (
            "autocap helper serve [--socket PATH] [--policy FILE] [--group NAME]\n"
            "       autocap helper status [--json]\n"
            "       autocap helper install [--group NAME] [--dry-run]\n"
            "       autocap helper uninstall [--dry-run]"
        )
        parser.add_argument("action", metavar="ACTION", choices=_ACTIONS, help="serve, status, install or uninstall")
        options.declare(parser, "helper", HelperConfig)

    def run(self, args: argparse.Namespace) -> int:
        for option, actions in _OF.items():
            if option in vars(args) and args.action not in actions:
                flag = "--" + option.replace("_", "-")
                raise UsageError(f"{flag} is of `autocap helper {' and '.join(actions)}`, not of {args.action}")
        take(args, "helper")
        config = record_from(HelperConfig, "helper", vars(args))
        match args.action:
            case "serve":
                _serve(config.socket or socket_path(), config.policy, config.group)
            case "status":
                _show(config.json)
            case _:
                _change(args.action, config.group, config.dry_run)
        return 0


def _serve(path: Path, policy: Path | None, group: str | None) -> None:
    """Until a signal says so."""
    from autocap.cli.logging_setup import log, log_as_service
    from autocap.devices import lendable
    from autocap.limits import Guardian
    from autocap.limits.fork_server import ForkedWatchdogs
    from autocap.limits.helper.computing import sees_all_processes
    from autocap.limits.helper.policy import DROP_INS, PolicyFiles
    from autocap.limits.helper.server import Server, ended_by_signals
    from autocap.limits.helper.service_state import ServiceState
    from autocap.limits.state_dir import StateDir, default_path
    from autocap.wire import listening

    if options.observing():
        raise UsageError("AUTOCAP_OBSERVE is set, under which no limit is; unset it to serve")
    gid = None if group is None else listening.gid_of(group)
    for name in ("SUDO_UID", "SUDO_GID", "SUDO_USER", "SUDO_COMMAND"):  # it acts for whoever connects, not for one user
        os.environ.pop(name, None)
    _raise_descriptor_limit()
    log_as_service()
    if not sees_all_processes():
        log.warning(
            "the helper is in a PID namespace of its own, where the driver does not list who else computes; start its "
            "container with --pid host"
        )
    state_dir = default_path()
    StateDir(state_dir).close()
    given = listening.handed_over()
    if given is None and path.parent == state_dir:
        state_dir.chmod(0o711)  # its files stay our own
    files = PolicyFiles(policy, state_dir / DROP_INS, os.geteuid())
    inventories = lendable()
    with (
        listening.own(path, gid) if given is None else given as listener,
        ForkedWatchdogs(tuple(inventories)) as watchdogs,
    ):
        guardian = partial(Guardian, start_watch=watchdogs.start)
        service_state = ServiceState(inventories=inventories, policy=files, state_dir=state_dir, new_guardian=guardian)
        service_state.remark()
        server = Server(service_state, listener, state_dir)
        with ended_by_signals(server):
            server.serve()
        log.info("autocap helper has ended")


def _raise_descriptor_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _DESCRIPTORS:
        most = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


def _show(as_json: bool) -> None:
    from autocap.errors import AutocapError
    from autocap.limits.helper.connection import connect
    from autocap.wire.refusal import Refused

    path = socket_path()
    connection = connect(path)
    try:
        devices, leases = connection.ask(Op.DEVICES, Devices).devices, connection.ask(Op.STATUS, Status).leases
    except Refused as error:
        raise AutocapError(f"the helper at {path} does not answer: {error}") from error
    finally:
        connection.close()
    if as_json:
        shown = {"devices": list(map(asdict, devices)), "leases": list(map(asdict, leases))}
        put_json({"socket": str(path), "server": connection.hello.server, **shown})
        return
    put(f"{connection.hello.server} serves {path}", *map(_line, devices))
    if not devices:
        put("it sees no GPU and no CPU package here")
    for lease in leases:
        caps = ", ".join("the limit found" if cap_w is None else f"{cap_w:g} W" for cap_w in lease.caps_w)
        put(f"lent to {lease.user} (PID {lease.pid}) since {lease.since}: {', '.join(lease.devices)} at {caps}")


def _line(offer: Offer) -> str:
    limits = "takes no limit"
    if offer.min_w is not None and offer.max_w is not None:
        limits = f"{offer.min_w:g} to {offer.max_w:g} W"
    verdict = "may be lent to you" if offer.allowed else "is not lent to you"
    return f"{offer.uuid} ({offer.name}), {limits}: {verdict}; {offer.why}"


def _change(action: str, group: str | None, dry_run: bool) -> None:
    from autocap.limits.helper import install

    if os.geteuid() != 0 and not dry_run:
        raise UsageError(
            f"`autocap helper {action}` needs root; run it with sudo, or see with --dry-run what it would do"
        )
    if action == "uninstall":
        steps = install.uninstall_steps()
        if not steps:
            put("no helper is installed")
            return
        install.carry_out(steps, put, dry_run=dry_run)
        put("the group of its users and /etc/autocap stay")
        return
    group = group or install.USUAL_GROUP
    install.carry_out(install.install_steps(group), put, dry_run=dry_run)
    put(f"who may ask it: `usermod -aG {group} NAME`, and a new login; who may have what: /etc/autocap/policy.toml")
