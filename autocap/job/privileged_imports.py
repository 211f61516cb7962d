"""Imports while the process acts as the user behind sudo: the files of modules are read with root's rights.

The user need not be allowed to read Python's installation (one below /root, say), and much is imported only where it is
needed. What is imported was checked (`trusted_code`), and runs with the rights of the moment.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import PathEntryFinder
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
    SourcelessFileLoader,
)
from types import ModuleType
from typing import Any

from autocap.job.invoking_user import privileged


@contextmanager
def privileged_imports() -> Iterator[None]:
    """Inside, modules are found and read with root's rights where `privileged` gives them."""
    sys.path_hooks.insert(0, _finder)
    sys.path_importer_cache.clear()
    try:
        yield
    finally:
        sys.path_hooks.remove(_finder)
        sys.path_importer_cache.clear()


class _Source(SourceFileLoader):
    def get_data(self, path: str) -> bytes:
        with privileged():
            return super().get_data(path)

    def path_stats(self, path: str) -> Any:  # Any: as typeshed has it
        with privileged():
            return super().path_stats(path)

    def set_data(self, path: str, data: object, *, _mode: int = 0o666) -> None:
        """Nothing is cached: root would write it where the user may stand."""


class _Bytecode(SourcelessFileLoader):
    def get_data(self, path: str) -> bytes:
        with privileged():
            return super().get_data(path)


class _Extension(ExtensionFileLoader):
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        with privileged():
            return super().create_module(spec)


class _Finder(FileFinder):
    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        with privileged():
            return super().find_spec(fullname, target)


def _finder(path: str) -> PathEntryFinder:
    with privileged():
        if not os.path.isdir(path or "."):
            raise ImportError("no directory", path=path)  # the next hook may know it
        loaders = ((_Extension, EXTENSION_SUFFIXES), (_Source, SOURCE_SUFFIXES), (_Bytecode, BYTECODE_SUFFIXES))
        return _Finder(path, *((loader, list(suffixes)) for loader, suffixes in loaders))
