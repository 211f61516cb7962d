"""What a source says now, whichever kind it is of."""

from pathlib import Path

from autocap.config.values import shown
from autocap.job.command_output import CommandFailed, output_of
from autocap.prices.quote import CARBON, PRICE
from autocap.prices.series import MOST_BYTES, WANTED, Series, SourceRefused, parse
from autocap.runlog.input_file import InputRefused, read_input

FILE, COMMAND, ENTSOE, GREAT_BRITAIN, ELECTRICITY_MAPS = "file:", "command:", "entsoe:", "gb", "electricitymaps:"
_COMMAND_S = 30.0


def read_source(source: str, kind: str, wall_s: float) -> Series:
    """The values of a kind that a source, as it was given, says at a time, seconds since 1970. Raises SourceRefused."""
    if source.startswith(FILE):
        return read_file(Path(source.removeprefix(FILE)), kind)
    if source.startswith(COMMAND):
        try:
            said = output_of(source.removeprefix(COMMAND), within_s=_COMMAND_S, most_bytes=MOST_BYTES)
        except CommandFailed as error:
            raise SourceRefused(f"{error}; {WANTED[kind]}") from error
        return parse(said, f"the output of {shown(source)}", kind)
    # What speaks to servers takes longer to import than anything else here, and most runs ask none.
    if kind == PRICE and source.startswith(ENTSOE):
        from autocap.plugins.grid import entsoe

        return entsoe.price(source.removeprefix(ENTSOE), wall_s)
    if kind == CARBON and source == GREAT_BRITAIN:
        from autocap.plugins.grid import great_britain

        return great_britain.carbon(wall_s)
    if kind == CARBON and source.startswith(ELECTRICITY_MAPS):
        from autocap.plugins.grid import electricity_maps

        return electricity_maps.carbon(source.removeprefix(ELECTRICITY_MAPS))
    raise SourceRefused(f"{shown(source)} is no source of {kind}")


def read_file(path: Path, kind: str) -> Series:
    """The values in a file. Raises SourceRefused."""
    try:
        return parse(read_input(path, MOST_BYTES), str(path), kind)
    except OSError as error:
        raise SourceRefused(f"{path} cannot be read: {error.strerror}; {WANTED[kind]}") from error
    except InputRefused as error:
        raise SourceRefused(str(error)) from error


def require(source: str, kind: str) -> None:
    """Before there is a job: raises SourceRefused for a file that cannot be used, and for a service that lacks
    something here. What has to be asked first is not asked."""
    if source.startswith(FILE):
        read_file(Path(source.removeprefix(FILE)), kind)
    why_not = None
    if source.startswith(ENTSOE):
        from autocap.plugins.grid import entsoe

        why_not = entsoe.missing()
    elif source.startswith(ELECTRICITY_MAPS):
        from autocap.plugins.grid import electricity_maps

        why_not = electricity_maps.missing()
    if why_not is not None:
        raise SourceRefused(why_not)
