"""Setting the limits of NVIDIA GPUs through zeusd (ml-energy/zeus), a service that may: HTTP over a socket.

It keeps no lease and puts nothing back, so a guardian with its journal and watchdog works through it. Its own numbers
for GPUs mean nothing to us: a GPU is found by its PCI address, anew before each set.
"""

import http.client
import json
import os
import re
import socket
from collections.abc import Mapping
from contextlib import closing
from ipaddress import ip_address
from urllib.parse import urlencode

from autocap.devices.nvml.library import open_library, pci_address
from autocap.devices.nvml.limits import NvmlLimits
from autocap.devices.nvml.state import LimitState, to_milliwatts
from autocap.errors import LimitRefused, SetterAbsent, SetterUnavailable
from autocap.text import printable

KIND = "zeusd"  # of a journal entry, with the address behind a colon
_USUAL = "/run/zeusd/zeusd.sock"
_SOCKET, _HOST, _TOKEN = "ZEUSD_SOCK_PATH", "ZEUSD_HOST_PORT", "ZEUSD_TOKEN"  # as its own client has them
_GROUP = "gpu-control"  # of its requests, the one that sets limits
_WITHIN_S = 5.0
_PCI_ADDRESS = re.compile(r"(?:0000)?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2})(?:\.[0-7])?")
_MOST_BYTES, _SHOWN = 1 << 20, 200  # of an answer
_SAYINGS = {401: f"does not take the token ({_TOKEN})", 403: f"grants no {_GROUP} to the token ({_TOKEN})"}
_SAYINGS |= {404: f"does not grant {_GROUP}"}


def usual_address(environ: Mapping[str, str] = os.environ) -> str:
    """Where zeusd is: the path of a Unix socket, or HOST:PORT, as its own client finds it."""
    return environ.get(_SOCKET) or environ.get(_HOST) or _USUAL


class Zeusd:
    """One zeusd. address: as `usual_address` gives it. token: `None` without one."""

    def __init__(self, address: str, token: str | None = None) -> None:
        self.address, self._token = address, token

    @staticmethod
    def usual(environ: Mapping[str, str] = os.environ) -> "Zeusd":
        return Zeusd(usual_address(environ), environ.get(_TOKEN) or None)

    def require(self, gpus: Mapping[str, str | None]) -> None:
        """Raises SetterUnavailable, with what is missing, where it would not set the limits of these GPUs.

        gpus: by what messages call them.
        """
        ids, groups, needs_token = self._discovered()
        if _GROUP not in groups:
            raise SetterUnavailable(f"{self._where} {_SAYINGS[404]}; its administrator enables that API group")
        if needs_token and self._token is None:
            raise SetterUnavailable(f"{self._where} asks for a token; set {_TOKEN}")
        for where, address in gpus.items():
            if address not in ids:
                raise SetterUnavailable(f"{self._where} does not have {where} ({address or 'PCI address unknown'})")

    def _discovered(self) -> tuple[dict[str, int], list[object], bool]:
        """Its own numbers of the GPUs it has, by PCI address; what it grants, and whether to tokens alone. Raises
        SetterUnavailable."""
        try:
            body = self._answer("GET", "/discover", {})
            groups, gpus, needs_token = body["enabled_api_groups"], body["gpus"], body.get("auth_required") is True
            if not isinstance(groups, list) or not isinstance(gpus, list):
                raise TypeError("its GPUs or API groups are no list")
            ids = {_as_lspci(gpu["pci_address"]): int(gpu["id"]) for gpu in gpus}
        except (ValueError, KeyError, TypeError) as error:
            raise SetterUnavailable(f"{self._where} does not answer as zeusd does: {error}") from error
        return ids, groups, needs_token

    def __call__(self, gpu: LimitState, cap_w: float) -> None:
        """Request a limit, as `Requester` has it, and wait until it was set. Raises LimitRefused."""
        try:
            address, (ids, _, _) = pci_address(gpu.handle, gpu.where), self._discovered()
            if address is None or address not in ids:
                raise SetterUnavailable(f"{self._where} does not have it ({address or 'PCI address unknown'})")
            self._set(ids[address], to_milliwatts(cap_w))
        except SetterUnavailable as error:
            raise LimitRefused(f"cap {cap_w:g} W was not set on {gpu.where}: {error}") from error

    @property
    def _where(self) -> str:
        return f"zeusd at {self.address}"

    def _set(self, gpu_id: int, limit_mw: int) -> None:
        # block: else only the sending of the request would be confirmed.
        asked = {"gpu_ids": str(gpu_id), "power_limit_mw": str(limit_mw), "block": "true"}
        errors = self._answer("POST", "/gpu/set_power_limit", asked).get("errors")
        if errors:
            said = "; ".join(map(str, errors.values())) if isinstance(errors, dict) else str(errors)
            raise SetterUnavailable(f"{self._where} could not set it: {printable(said)[:_SHOWN]!r}")

    def _answer(self, method: str, path: str, parameters: Mapping[str, str]) -> dict[str, object]:
        """The object that it answers, an empty one for nothing. Raises SetterUnavailable, ValueError."""
        url = f"{path}?{urlencode(parameters)}" if parameters else path
        headers = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        try:
            with closing(self._connection()) as connection:
                connection.request(method, url, headers=headers)
                response = connection.getresponse()
                status, data = response.status, response.read(_MOST_BYTES)
        except FileNotFoundError as error:
            raise SetterAbsent(f"no zeusd serves {self.address}") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise SetterUnavailable(f"{self._where} cannot be asked: {why}") from error
        body = _object(data) if data.strip() else {}
        if status != 200 and not body.get("errors"):
            text = printable(data.decode(errors="replace"))[:_SHOWN]
            raise SetterUnavailable(f"{self._where} {_SAYINGS.get(status, f'answers {status} {text!r}')}")
        return body

    def _connection(self) -> http.client.HTTPConnection:
        if self.address.startswith("/"):
            return _UnixConnection(self.address)
        host, _, port = self.address.rpartition(":")
        if not _is_this_machine(host.strip("[]")) or not port.isdigit():
            raise SetterUnavailable(
                f"{_HOST} is {printable(self.address)!r}, not HOST:PORT of this machine (127.0.0.1, ::1, localhost): "
                "another machine's zeusd would set another machine's limits"
            )
        return http.client.HTTPConnection(host.strip("[]"), int(port), timeout=_WITHIN_S)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_WITHIN_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_WITHIN_S)
        self.sock.connect(self._path)


def limits_at(address: str) -> NvmlLimits:
    """For the watchdog and `autocap restore`. Raises DeviceUnavailable without a driver."""
    return NvmlLimits(open_library(), alone=True, request=Zeusd(address, os.environ.get(_TOKEN) or None))


def _object(data: bytes) -> dict[str, object]:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def _as_lspci(address: str) -> str:
    """A PCI address that may be written as NVML does, 00000000:3B:00.0. Raises ValueError."""
    match = _PCI_ADDRESS.fullmatch(address.lower())
    if match is None:
        raise ValueError(f"'{printable(address)}' is no PCI address, such as 0000:3b:00.0")
    return f"{match[1]}.0"


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
