"""Whether limits could be set, told without setting one."""

from pathlib import Path

import pytest

from autocap.devices.permission import Privileges, denial, own_privileges, settable

ADMIN = Privileges(admin=True, namespaced=False)


def process(folder: Path, effective: str, uid_map: str | None = "         0          0 4294967295\n") -> Path:
    (folder / "status").write_text(f"Name:\tpython\nCapPrm:\tffffffffffffffff\nCapEff:\t{effective}\n")
    if uid_map is not None:
        (folder / "uid_map").write_text(uid_map)
    return folder


@pytest.mark.parametrize(
    ("effective", "uid_map", "expected"),
    [
        ("000001ffffffffff", "0 0 4294967295", ADMIN),
        ("0000000000200000", "0 0 4294967295", ADMIN),
        ("00000000a80425fb", "0 0 4294967295", Privileges(admin=False, namespaced=False)),  # a container's root
        ("000001ffffffffff", "0 1000 1", Privileges(admin=True, namespaced=True)),
        ("000001ffffffffff", None, ADMIN),
    ],
    ids=["root", "one capability", "container", "rootless", "no namespaces"],
)
def test_privileges_are_what_the_kernel_says(tmp_path, effective, uid_map, expected) -> None:
    assert own_privileges(process(tmp_path, effective, uid_map)) == expected


def test_a_gpu_that_takes_no_limit_is_not_settable_even_by_root() -> None:
    found = settable("GPU 0 is split into MIG instances", ADMIN)
    assert (found.answer, found.why) == (False, "GPU 0 is split into MIG instances")


def test_without_the_capability_the_ways_out_are_named() -> None:
    found = settable(None, Privileges(admin=False, namespaced=False))
    assert found.answer is False
    assert all(way in found.why for way in ("sudo", "--cap-add SYS_ADMIN", "--observe"))


def test_with_it_limits_are_settable_unless_the_driver_may_not_accept_it() -> None:
    assert settable(None, ADMIN).answer is True
    found = settable(None, Privileges(admin=True, namespaced=True))
    assert found.answer == "unknown"
    assert "`autocap run` will tell" in found.why


def test_who_may_not_or_perhaps_not_set_limits_has_somebody_else_asked_first() -> None:
    assert denial(ADMIN) is None
    assert denial(Privileges(admin=False, namespaced=False)) == "setting a limit needs root or CAP_SYS_ADMIN"
    assert "in a user namespace of our own alone" in (denial(Privileges(admin=True, namespaced=True)) or "")
