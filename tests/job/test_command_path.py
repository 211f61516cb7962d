"""Under sudo the user's own program is started, whatever sudo's PATH holds, and the job finds others likewise."""

import os
import pwd
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from autocap.errors import CommandNotExecutable, CommandNotFound
from autocap.job import child
from autocap.job.command_path import JobCommand, job_command, login_path
from autocap.job.invoking_user import InvokingUser, acting_as
from autocap.job.own_command import own_folders, sudo_advice
from tests.doubles.waiting import eventually

NOBODY = pwd.getpwnam("nobody")
USER = InvokingUser(uid=NOBODY.pw_uid, gid=NOBODY.pw_gid, groups=(NOBODY.pw_gid,), name="nobody", home="/")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can imitate sudo")


class Folders:
    """Beside autocap, on the PATH of a login, and on sudo's own."""

    def __init__(self, root: Path) -> None:
        root.chmod(0o755)
        self.root, self.own, self.login, self.plain = root, root / "own", root / "login", root / "plain"
        for folder in (self.own, self.login, self.plain):
            folder.mkdir()

    def program(self, folder: Path, name: str = "tool", mode: int = 0o755) -> str:
        file = folder / name
        file.write_text(f'#!/bin/sh\necho "$0 $PATH" > "{self.root}/seen"\n')
        file.chmod(mode)
        return str(file)

    def environ(self) -> dict[str, str]:
        return {"PATH": f"{self.plain}:/usr/bin:/bin", "OTHER": "kept"}

    def found(self, *command: str, login: Callable[[InvokingUser, str], str | None] | None = None) -> JobCommand:
        answer = login or (lambda user, path: f"{self.login}:/bin")
        return job_command(command, self.environ(), USER, [str(self.own)], answer)

    def path(self, *first: Path) -> str:
        return ":".join(map(str, first))


@pytest.fixture
def folders() -> Iterator[Folders]:
    root = Path(tempfile.mkdtemp(prefix="autocap-path-"))  # pytest's own are closed to others
    yield Folders(root)
    shutil.rmtree(root)


def shell(folders: Folders, text: str) -> str:
    """A login shell of somebody's, with a profile of these lines."""
    file = folders.root / "shell"
    file.write_text(f'#!/bin/sh\n{text}\nexec /bin/sh "$@"\n')
    file.chmod(0o755)
    return str(file)


def test_without_sudo_nothing_changes(folders: Folders) -> None:
    folders.program(folders.own)
    found = job_command(["tool", "x"], folders.environ(), None, [str(folders.own)])
    assert found == JobCommand(argv=("tool", "x"))
    assert found.environment(folders.environ()) == folders.environ()


@as_root
def test_beside_autocap_comes_first_then_the_login_then_sudos_path(folders: Folders) -> None:
    everywhere = f"{folders.own}:{folders.login}:/bin:{folders.plain}:/usr/bin"
    plain = folders.program(folders.plain)
    assert folders.found("tool", "x") == JobCommand(argv=("tool", "x"), path=everywhere)

    login = folders.program(folders.login)
    assert folders.found("tool", "x") == JobCommand(argv=("tool", "x"), path=everywhere, taken=login, plain=plain)

    own = folders.program(folders.own)
    found = folders.found("tool", "x")
    assert found == JobCommand(argv=("tool", "x"), path=everywhere, taken=own, plain=plain)
    assert found.environment(folders.environ()) == {"PATH": everywhere, "OTHER": "kept"}


@as_root
def test_what_sudos_path_has_not_is_said_as_well(folders: Folders) -> None:
    own = folders.program(folders.own)
    assert (folders.found("tool").taken, folders.found("tool").plain) == (own, None)


@as_root
@pytest.mark.parametrize("command", ["./tool", "/bin/sh", "sh", "env"])
def test_what_another_program_or_a_path_starts_is_found_in_the_same_way(folders: Folders, command: str) -> None:
    found = folders.found(command, "-c", "tool")
    assert (found.argv, found.taken) == ((command, "-c", "tool"), None)
    assert found.path.startswith(f"{folders.own}:{folders.login}:")


@as_root
def test_a_folder_of_the_system_keeps_its_place_but_what_is_beside_autocap_is_taken(folders: Folders) -> None:
    shadowing, own = folders.program(folders.plain), folders.program(folders.own)
    environ = {"PATH": f"{folders.plain}:{folders.own}"}
    found = job_command(["tool"], environ, USER, [str(folders.own)], lambda user, path: None)
    assert found == JobCommand(argv=(own,), path=environ["PATH"], taken=own, plain=shadowing)


@as_root
def test_the_same_folder_by_another_name_is_nothing_to_tell(folders: Folders) -> None:
    folders.program(folders.plain)
    (folders.root / "link").symlink_to(folders.plain)
    found = folders.found("tool", login=lambda user, path: str(folders.root / "link"))
    assert found.taken is None


@as_root
def test_a_link_to_the_same_interpreter_is_another_program(folders: Folders) -> None:
    (folders.own / "tool").symlink_to(folders.program(folders.plain))  # as an environment's python
    assert folders.found("tool").taken == str(folders.own / "tool")


@as_root
def test_only_what_the_user_may_execute_is_taken(folders: Folders) -> None:
    plain = folders.program(folders.plain)
    folders.program(folders.own, mode=0o700)  # root's alone
    folders.program(folders.login, mode=0o644)
    assert folders.found("tool").taken is None
    folders.program(folders.own)
    folders.own.chmod(0o700)
    found = folders.found("tool")
    assert (found.taken, found.path) == (None, f"{folders.login}:/bin:{folders.plain}:/usr/bin"), plain


@as_root
def test_a_path_that_sudo_was_told_to_keep_is_the_users_word(folders: Folders) -> None:
    mine = folders.root / "mine"
    mine.mkdir()
    os.chown(mine, USER.uid, USER.gid)
    program = folders.program(mine)
    folders.program(folders.login)

    def never(user: InvokingUser, path: str) -> str:
        raise AssertionError("their profile was run for nothing")

    found = job_command(["tool"], {"PATH": f"{mine}:/bin"}, USER, [str(folders.own)], never)
    assert found == JobCommand(argv=("tool",), path=f"{folders.own}:{mine}:/bin"), program


@as_root
@pytest.mark.parametrize("name", ["tool", "", "a\0b", "\ud800", "c" * 5000, "..", "/"])
def test_what_is_nowhere_is_left_to_the_start_which_says_so(folders: Folders, name: str) -> None:
    found = folders.found(name)
    assert found.argv == (name,)
    with pytest.raises((CommandNotFound, CommandNotExecutable)):
        child.start(found.argv, found.environment(folders.environ()))


@as_root
def test_a_login_that_is_not_known_in_time_is_said(folders: Folders) -> None:
    slow = shell(folders, "sleep 60")
    folders.program(folders.plain)
    found = folders.found("tool", login=lambda user, path: login_path(user, path, slow, patience_s=0.1))
    assert (found.argv, found.path) == (("tool",), f"{folders.own}:{folders.plain}:/usr/bin:/bin")
    assert found.doubt == (
        "the login shell of nobody did not tell its PATH in time, so sudo's own was used; give the command's full path "
        "if another program was meant"
    )


@as_root
def test_the_error_says_where_was_looked(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "keeper", lambda: object())
    found = folders.found("nosuchcmd")
    message = (
        "^command 'nosuchcmd' was not found in PATH, which under sudo is autocap's folder, your login's PATH and "
        "sudo's; give its full path$"
    )
    for start in (child.start, lambda *args: child.waiting_start(*args).__enter__()):
        with pytest.raises(CommandNotFound, match=message) as raised:
            start(found.argv, found.environment(folders.environ()))
        assert raised.value.exit_status == 127
    file = folders.program(folders.own, mode=0o644)
    message = f"is not executable: Permission denied; it must be where you may execute {file} without sudo$"
    with pytest.raises(CommandNotExecutable, match=message) as refused, acting_as(USER):
        child.start(["tool"], found.environment(folders.environ()))
    assert refused.value.exit_status == 126


@as_root
def test_the_program_is_started_and_sees_the_path_by_which_it_was_found(folders: Folders) -> None:
    folders.root.chmod(0o777)
    folders.program(folders.plain)
    program = folders.program(folders.own)
    found = folders.found("env", "tool")
    assert child.start(found.argv, found.environment(folders.environ())).wait() == 0
    assert (folders.root / "seen").read_text() == f"{program} {found.path}\n"


@as_root
def test_a_login_shell_is_asked_with_the_rights_of_its_user_and_nothing_of_ours(folders: Folders) -> None:
    folders.root.chmod(0o777)
    seen = folders.root / "seen"
    text = '(id -u; id -g; id -G; echo "$HOME $USER $SHELL"; env | wc -l; ls /proc/self/fd | wc -l; read x || echo end)'
    program = shell(folders, f"{text} > {seen}; echo Welcome; printf '\\0PATH=/no\\0'; PATH=$HOME/bin:$PATH")
    home = InvokingUser(uid=USER.uid, gid=USER.gid, groups=USER.groups, name="ada", home="/home/ada")
    with acting_as(home):
        found = login_path(home, "/usr/bin:/bin", program)
    assert found == "/home/ada/bin:/usr/bin:/bin"
    uid, gid, groups, names, variables, descriptors, nothing = seen.read_text().splitlines()
    assert (uid, gid, groups, nothing) == (str(USER.uid), str(USER.gid), str(USER.gid), "end")
    assert names == f"/home/ada ada {program}"
    assert int(variables) <= 8
    assert int(descriptors) == 4  # that of the listing as well


def living(group: int) -> list[str]:
    """The processes of a group, those left out that only wait for somebody to look at their end."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state not in "ZX":
                found.append(stat.parent.name)
    return found


@as_root
@pytest.mark.parametrize("program", ["/bin/sh", "/bin/bash", "/bin/zsh"])
def test_a_real_shell_reads_the_profile_of_a_login(folders: Folders, program: str) -> None:
    if not os.access(program, os.X_OK):
        pytest.skip(f"there is no {program} here")
    for name in (".profile", ".zprofile"):
        (folders.root / name).write_text("echo Welcome\nPATH=$HOME/it's/bin:$PATH\n".replace("'", "\\'"))
    user = InvokingUser(uid=USER.uid, gid=USER.gid, groups=USER.groups, name="ada", home=str(folders.root))
    found = login_path(user, "/usr/bin:/bin", program, patience_s=30.0)
    assert found.startswith(f"{folders.root}/it's/bin:")


@as_root
@pytest.mark.parametrize(
    "profile",
    [
        "exit 0",
        "echo PATH=/bin; exit 1",
        "kill -9 $$",
        "sleep 60",
        "exec yes",
        "sleep 60 & exit 0",
        "exec >&-; sleep 60",
    ],
)
def test_a_shell_that_does_not_say_is_not_waited_for_and_leaves_nothing(folders: Folders, profile: str) -> None:
    pid = folders.root / "pid"
    folders.root.chmod(0o777)
    began = time.monotonic()
    with suppress(TimeoutError):
        assert login_path(USER, "/usr/bin:/bin", shell(folders, f"echo $$ > {pid}; {profile}"), patience_s=0.3) is None
    assert time.monotonic() - began < 10.0
    eventually(lambda: not living(int(pid.read_text())))


@as_root
def test_what_a_profile_leaves_running_holds_nothing_up(folders: Folders) -> None:
    program = shell(folders, "sleep 60 &")
    began = time.monotonic()
    assert login_path(USER, "/usr/bin:/bin", program, patience_s=30.0) == "/usr/bin:/bin"
    assert time.monotonic() - began < 10.0


@as_root
@pytest.mark.parametrize("program", ["/no/such/shell", "/", "/etc/passwd", "/usr/sbin/nologin", "/bin/false"])
def test_who_has_no_shell_has_no_login(program: str) -> None:
    assert login_path(USER, "/usr/bin:/bin", program) is None


def test_a_user_without_a_passwd_entry_has_no_login() -> None:
    assert login_path(InvokingUser(uid=4242, gid=4242, groups=(4242,), name="4242", home="/"), "/bin") is None


def test_the_folders_of_autocap_are_the_commands_and_its_pythons() -> None:
    assert own_folders("/usr/local/bin/autocap", "/opt/venv/bin/python") == ("/usr/local/bin", "/opt/venv/bin")
    assert own_folders("/v/bin/autocap", "/v/bin/python3") == ("/v/bin",)
    assert own_folders("/v/lib/autocap/__main__.py", "/v/bin/python") == ("/v/bin",)
    assert own_folders(".venv/bin/autocap", "") == (f"{os.getcwd()}/.venv/bin",)


def test_the_advice_is_a_line_that_works() -> None:
    assert sudo_advice("/usr/bin/autocap") == sudo_advice("/v/lib/autocap/__main__.py") == "run autocap with sudo"
    assert sudo_advice("/home/ada/my venv/bin/autocap") == "run sudo '/home/ada/my venv/bin/autocap'"
