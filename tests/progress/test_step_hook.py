"""The hook inside the child: real processes, started as `autocap run` starts them."""

import gc
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import autocap
from autocap.devices.model.sensor import PRESETS
from autocap.job.processes import identify
from autocap.job.shared_files import remove_dead
from autocap.progress.counter import IterationCounter
from autocap.progress.steps.hook import sitecustomize as step_hook
from autocap.progress.steps.map import StepMap
from autocap.progress.values import OUT_OF_MEMORY, ValueFile
from autocap.records import Sample

# As much of torch as the hook knows about: the module it waits for, and the function it looks for there.
TINY_TORCH = """
_hooks = []
def register_optimizer_step_post_hook(hook):
    _hooks.append(hook)
class Optimizer:
    def step(self):
        for hook in _hooks:
            hook(self, (), {})
"""

TRAIN = "from torch.optim.optimizer import Optimizer\no = Optimizer()\nfor _ in range(5): o.step()\nprint('trained')\n"


@pytest.fixture
def tiny_torch(tmp_path: Path) -> Path:
    """A directory for PYTHONPATH in which `torch` is the one above."""
    directory = tmp_path / "site"
    package = directory / "torch" / "optim"
    package.mkdir(parents=True)
    (directory / "torch" / "__init__.py").write_text("import torch.optim\n")
    (package / "__init__.py").write_text("from torch.optim.optimizer import Optimizer\n")
    (package / "optimizer.py").write_text(TINY_TORCH)
    return directory


def run(environment: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], env=dict(environment), capture_output=True, text=True, timeout=120, check=False
    )


def plain(**variables: str) -> dict[str, str]:
    """Our environment without what the tests are about."""
    left_out = ("PYTHONPATH", "RANK", "AUTOCAP_STEP_MAP")
    return {name: value for name, value in os.environ.items() if name not in left_out} | variables


def count(step_map: StepMap) -> int | None:
    reading = step_map.read(0.0)
    return None if reading is None else reading.count


def slots_taken(step_map: StepMap) -> int:
    table = step_map.path.read_bytes()[step_hook.HEADER_BYTES :]
    return sum(table[at : at + 8] != bytes(8) for at in range(0, len(table), step_hook.SLOT_BYTES))


class Optimizer: ...


class TestCounter:
    """One process's count, made of those of its optimisers."""

    @pytest.fixture
    def counter(self, step_map: StepMap) -> step_hook.StepCounter:
        return step_hook.StepCounter(str(step_map.path))

    def test_of_two_optimisers_the_busier_one_counts(self, counter: step_hook.StepCounter, step_map: StepMap) -> None:
        critic, generator = Optimizer(), Optimizer()
        for iteration in range(1, 21):
            for _ in range(5):
                counter.optimizer_stepped(critic)
            counter.optimizer_stepped(generator)
            if iteration > 1:  # the one that is met second counts once
                assert count(step_map) == 5 * iteration

    def test_an_optimiser_made_anew_every_epoch_never_stalls_the_count(self, counter, step_map) -> None:
        for epoch in range(10):
            optimizer = Optimizer()
            for step in range(7):
                counter.optimizer_stepped(optimizer)
                assert count(step_map) == epoch * 7 + step + 1

    def test_an_optimiser_for_one_step_only_counts_as_well(self, counter, step_map) -> None:
        kept = [Optimizer() for _ in range(30)]
        for optimizer in kept:
            counter.optimizer_stepped(optimizer)
        assert count(step_map) == 30

    def test_one_optimiser_a_layer_counts_once_an_iteration(self, counter, step_map) -> None:
        layers = [Optimizer() for _ in range(50)]
        for _ in range(11):
            for optimizer in layers:
                counter.optimizer_stepped(optimizer)
        assert count(step_map) == 50 + 10  # each counts when it is met, then all go up together

    def test_an_older_optimiser_that_goes_on_alone_is_counted_again_after_a_few_steps(self, counter, step_map) -> None:
        first, second = Optimizer(), Optimizer()
        counter.optimizer_stepped(first)
        for _ in range(100):
            counter.optimizer_stepped(second)
        for _ in range(30):
            counter.optimizer_stepped(first)
        assert 101 + 20 <= (count(step_map) or 0) <= 101 + 30

    def test_a_dead_optimiser_leaves_nothing_behind(self, counter: step_hook.StepCounter) -> None:
        for _ in range(100):
            counter.optimizer_stepped(Optimizer())
        gc.collect()
        assert len(counter._counts) == len(counter._watches) == 0

    def test_an_optimiser_that_cannot_be_watched_is_counted_too(self, counter, step_map) -> None:
        class Optimizer:
            __slots__ = ()

        optimizer = Optimizer()
        for _ in range(5):
            counter.optimizer_stepped(optimizer)
        assert count(step_map) == 5

    def test_steps_by_hand_win_over_those_of_optimisers(self, counter, step_map) -> None:
        optimizer = Optimizer()
        for _ in range(4):  # gradient accumulation by a framework of the user's own: four steps an iteration
            counter.optimizer_stepped(optimizer)
        counter.step()
        for _ in range(10):
            for _ in range(4):
                counter.optimizer_stepped(optimizer)
            counter.step()
        assert count(step_map) == 4 + 10  # by optimisers the first was counted as it went, and is not counted again

    def test_while_another_process_takes_a_slot_steps_are_counted_and_published_later(self, counter, step_map) -> None:
        take = (
            "import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"
        )
        words = [sys.executable, "-I", "-S", "-c", take, str(step_map.path)]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            other.stdout.readline()
            counter.step()
            counter.step()
            meanwhile = count(step_map)
            other.communicate(b"\n")
        counter.step()
        assert meanwhile is None
        assert count(step_map) == 3

    def test_what_interrupts_the_taking_of_a_slot_waits_for_nobody(self, counter, step_map) -> None:
        with counter._taking:  # as for a second thread, or for a signal handler that steps
            counter.step()
        assert count(step_map) is None
        counter.step()
        assert count(step_map) == 2

    def test_counting_leaves_the_maker_s_lock_alone(self, counter: step_hook.StepCounter, step_map: StepMap) -> None:
        counter.step()
        remove_dead([step_map.path.parent])
        assert step_map.path.exists()


class TestStartUp:
    """What Python does at start-up is what it would have done without us."""

    LOOK = "import sys; print(sys.path); print('sitecustomize' in sys.modules)"

    def test_a_child_without_torch_sees_the_same_path_and_no_module_more_than_ours(self, step_map: StepMap) -> None:
        look = "import sys; print(sys.path, len(sys.meta_path)); print(*sorted(sys.modules))"
        without = run(plain(PYTHONPATH="/a:/b"), "-c", look)
        hooked = run(step_map.environment(plain(PYTHONPATH="/a:/b")), "-c", look)

        path, modules = without.stdout.splitlines()
        finders = int(path.split()[-1])
        hooked_path, hooked_modules = hooked.stdout.splitlines()
        assert hooked_path == path.removesuffix(str(finders)) + str(finders + 1)
        assert set(hooked_modules.split()) - set(modules.split()) == {"_autocap_stephook"}
        assert hooked.stderr == without.stderr
        assert slots_taken(step_map) == 0

    def test_the_user_s_own_sitecustomize_runs_and_keeps_its_name(self, tmp_path: Path, step_map: StepMap) -> None:
        (tmp_path / "sitecustomize.py").write_text("print('mine')\n")
        hooked = run(
            step_map.environment(plain(PYTHONPATH=str(tmp_path))),
            "-c",
            "import sys; print(sys.modules['sitecustomize'].__file__)",
        )
        assert hooked.stdout.splitlines() == ["mine", str(tmp_path / "sitecustomize.py")]
        assert hooked.stderr == ""

    @pytest.mark.parametrize("fault", ["1 / 0", "import no_such_module", "import sitecustomize.inner", "("])
    def test_a_fault_in_the_user_s_own_sitecustomize_looks_as_it_does_without_us(
        self, tmp_path: Path, step_map: StepMap, fault: str
    ) -> None:
        (tmp_path / "sitecustomize.py").write_text(fault + "\n")
        environment = plain(PYTHONPATH=str(tmp_path))
        without = run(environment, "-c", self.LOOK)
        hooked = run(step_map.environment(environment), "-c", self.LOOK)
        assert without.stderr
        assert (hooked.returncode, hooked.stdout, hooked.stderr) == (without.returncode, without.stdout, without.stderr)

    def test_a_sitecustomize_that_ends_the_process_still_does(self, tmp_path: Path, step_map: StepMap) -> None:
        (tmp_path / "sitecustomize.py").write_text("import os\nos._exit(4)\n")
        assert run(step_map.environment(plain(PYTHONPATH=str(tmp_path))), "-c", "print('on')").returncode == 4

    def test_usercustomize_is_left_alone(self, tmp_path: Path, step_map: StepMap) -> None:
        (tmp_path / "usercustomize.py").write_text("print('user')\n")
        look = "import site, sys; print(site.ENABLE_USER_SITE, 'usercustomize' in sys.modules)"
        environment = plain(PYTHONPATH=str(tmp_path))
        assert run(step_map.environment(environment), "-c", look).stdout == run(environment, "-c", look).stdout


class TestImport:
    """The hook meets torch, or what looks like it."""

    def test_the_steps_of_a_script_are_counted_without_a_line_of_its_code(self, tiny_torch, step_map) -> None:
        environment = step_map.environment(plain(PYTHONPATH=str(tiny_torch)))
        result = run(environment, "-c", TRAIN)
        assert (result.stdout, result.stderr) == ("trained\n", "")
        assert count(step_map) == 5

    def test_processes_that_the_child_starts_are_counted_too(self, tiny_torch: Path, step_map: StepMap) -> None:
        launch = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {TRAIN!r}], check=True)"
        run(step_map.environment(plain(PYTHONPATH=str(tiny_torch))), "-c", launch)
        assert count(step_map) == 5
        assert slots_taken(step_map) == 1

    def test_the_module_looks_as_it_does_without_us_and_our_finder_is_gone(self, tiny_torch, step_map) -> None:
        look = (
            "import sys, torch; m = sys.modules['torch.optim.optimizer']\n"
            "print(type(m.__loader__), m.__spec__.loader is m.__loader__, m.__spec__.origin)\n"
            "print(m.__file__, m.__cached__, [type(finder) for finder in sys.meta_path])"
        )
        environment = plain(PYTHONPATH=str(tiny_torch))
        hooked, without = run(step_map.environment(environment), "-c", look), run(environment, "-c", look)
        assert hooked.stdout == without.stdout

    def test_a_torch_that_cannot_be_imported_fails_as_without_us(self, tiny_torch: Path, step_map: StepMap) -> None:
        (tiny_torch / "torch" / "optim" / "optimizer.py").write_text("raise OSError('libcuda')\n")
        attempt = "\ntry:\n import torch\nexcept OSError as error: print(error)\n"
        environment = plain(PYTHONPATH=str(tiny_torch))
        hooked, without = (
            run(step_map.environment(environment), "-c", attempt * 2),
            run(environment, "-c", attempt * 2),
        )
        assert hooked.stdout == without.stdout == "libcuda\nlibcuda\n"
        assert hooked.stderr == without.stderr == ""

    def test_a_torch_without_the_hook_function_is_left_alone(self, tiny_torch: Path, step_map: StepMap) -> None:
        old = "class Optimizer:\n def step(self): pass\n"
        (tiny_torch / "torch" / "optim" / "optimizer.py").write_text(old)
        result = run(step_map.environment(plain(PYTHONPATH=str(tiny_torch))), "-c", TRAIN)
        assert (result.stdout, result.stderr) == ("trained\n", "")
        assert count(step_map) is None

    def test_a_torch_that_the_user_s_path_file_imported_before_us_is_still_counted(self, tiny_torch, step_map) -> None:
        late = f"import sys; sys.path.insert(0, {step_hook.__file__.rpartition('/')[0]!r}); import torch\n"
        late += "sys.modules.pop('sitecustomize', None)\n"
        late += "try: import sitecustomize\nexcept ImportError: pass\n"
        environment = step_map.environment(plain(PYTHONPATH=str(tiny_torch))) | {"PYTHONPATH": str(tiny_torch)}
        run(environment, "-c", late + TRAIN)
        assert count(step_map) == 5

    @pytest.mark.parametrize("option", ["-I", "-S", "-E"])
    def test_an_isolated_python_gives_no_step_and_is_not_disturbed(self, tiny_torch, step_map, option) -> None:
        script = f"import sys; sys.path.insert(0, {str(tiny_torch)!r})\n{TRAIN}"
        result = run(step_map.environment(plain()), option, "-c", script)
        assert (result.returncode, result.stdout, result.stderr) == (0, "trained\n", "")
        assert count(step_map) is None

    def test_a_fork_gives_up_the_slot_and_takes_its_own_at_its_own_first_step(self, tiny_torch, step_map) -> None:
        script = TRAIN + (
            "import os\n"
            "if os.fork() == 0: os._exit(0)\n"  # a worker that never steps
            "os.wait()\n"
            "if os.fork() == 0:\n o.step(); o.step(); os._exit(0)\n"
            "os.wait()\n"
            "o.step()\n"
        )
        run(step_map.environment(plain(PYTHONPATH=str(tiny_torch))), "-c", script)
        assert slots_taken(step_map) == 2
        assert count(step_map) == 6  # the parent's own: nothing was written over them

    def test_two_ranks_have_a_slot_each_and_the_slower_one_counts(self, tiny_torch: Path, step_map: StepMap) -> None:
        environment = step_map.environment(plain(PYTHONPATH=str(tiny_torch)))
        run(environment | {"RANK": "0"}, "-c", TRAIN + "o.step(); o.step()\n")
        run(environment | {"RANK": "1"}, "-c", TRAIN)
        assert slots_taken(step_map) == 2
        assert count(step_map) == 5

    def test_ranks_that_step_first_at_the_same_moment_each_get_a_slot(self, tiny_torch, step_map) -> None:
        script = TRAIN + "import time\nfor _ in range(100): time.sleep(0.002); o.step()\n"
        environment = step_map.environment(plain(PYTHONPATH=str(tiny_torch)))
        children = [
            subprocess.Popen(
                [sys.executable, "-c", script], env=environment | {"RANK": str(rank)}, stdout=subprocess.DEVNULL
            )
            for rank in range(6)
        ]
        assert [child.wait(timeout=120) for child in children] == [0] * 6
        assert slots_taken(step_map) == 6
        assert count(step_map) == 105

    @pytest.mark.parametrize("rank", ["", "zero", "-1"])
    def test_a_rank_that_is_no_number_is_no_rank(self, tiny_torch: Path, step_map: StepMap, rank: str) -> None:
        result = run(step_map.environment(plain(PYTHONPATH=str(tiny_torch), RANK=rank)), "-c", TRAIN)
        assert result.stderr == ""
        assert count(step_map) == 5

    def test_a_program_replaced_by_another_keeps_its_slot(self, tiny_torch: Path, step_map: StepMap) -> None:
        script = TRAIN + f"import os, sys; os.execv(sys.executable, [sys.executable, '-c', {TRAIN!r}])"
        run(step_map.environment(plain(PYTHONPATH=str(tiny_torch))), "-c", script)
        assert slots_taken(step_map) == 1

    @pytest.mark.parametrize("fault", ["missing", "empty", "foreign", "directory", "link", "short"])
    def test_a_map_that_cannot_be_used_leaves_the_child_as_it_is(self, tiny_torch, tmp_path, step_map, fault) -> None:
        path = tmp_path / "broken"
        if fault == "directory":
            path.mkdir()
        elif fault == "link":
            path.symlink_to(step_map.path)
        elif fault != "missing":
            table = {"empty": b"", "foreign": bytes(20000), "short": step_map.path.read_bytes()[:1000]}
            path.write_bytes(table[fault])
        environment = step_map.environment(plain(PYTHONPATH=str(tiny_torch))) | {"AUTOCAP_STEP_MAP": str(path)}
        result = run(environment, "-c", TRAIN + "import autocap; autocap.step()")
        assert (result.returncode, result.stdout, result.stderr) == (0, "trained\n", "")
        assert count(step_map) is None


class TestStepsByHand:
    @pytest.mark.parametrize("isolated", [(), ("-I",)])
    def test_they_are_counted_without_torch_and_where_python_is_isolated(self, step_map, isolated) -> None:
        code = "import autocap\nfor _ in range(3): autocap.step()"
        result = run(step_map.environment(plain()), *isolated, "-c", code)
        assert (result.stderr, count(step_map)) == ("", 3)

    def test_they_share_the_slot_of_the_optimiser_s_steps(self, tiny_torch: Path, step_map: StepMap) -> None:
        run(step_map.environment(plain(PYTHONPATH=str(tiny_torch))), "-c", TRAIN + "import autocap; autocap.step()")
        assert count(step_map) == 5  # the step by hand ends the fifth iteration, which has counted
        assert slots_taken(step_map) == 1

    def test_outside_a_run_they_are_there_for_who_attaches_and_nothing_is_left(self) -> None:
        code = "import autocap; autocap.step()\nautocap.step(); print('on', flush=True); input()"
        with subprocess.Popen(
            [sys.executable, "-c", code], env=plain(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as job:
            assert job.stdout.readline() == b"on\n"
            identity = identify(job.pid)
            with IterationCounter("auto", ours=False) as counter:
                counter.follow(identity)
                reading, progress = counter.read(0.0), counter.progress(PRESETS["turing"].info())
                path = Path(os.readlink(f"/proc/self/fd/{counter._map.fd}")) if counter._map else Path("/")
                assert path.is_file()
                job.communicate(b"\n")
        assert (reading.count, reading.of_calls, counter.fault) == (2, False, None)
        assert progress.marks(Sample(t_s=reading.t_s, readings=(), steps=reading))
        assert (progress.kind, job.returncode, path.exists()) == ("steps", 0, False)

    def test_a_file_that_holds_no_steps_is_not_taken_for_the_job_s(self, step_map: StepMap) -> None:
        identity = identify(os.getpid())
        assert StepMap.of_job(identity) is not None
        os.ftruncate(step_map.fd, 0)
        assert StepMap.of_job(identity) is None

    def test_importing_autocap_imports_nothing_heavy(self) -> None:
        look = "import sys, autocap; autocap.step(); print({'numpy', 'scipy', 'tempfile'} & set(sys.modules))"
        assert run(plain(), "-c", look).stdout == "set()\n"


REAL = """
import torch
from torch.utils.data import DataLoader
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train(batches, step=optimizer.step):
    for batch in batches:
        model(batch).sum().backward()
        step()
"""


class TestRealTorch:
    """Slower than the rest: it imports torch, and its compiler."""

    @pytest.mark.slow
    def test_training_with_loader_workers_and_a_compiled_step_is_counted_in_one_slot_without_a_warning(
        self, step_map: StepMap
    ) -> None:
        script = (
            REAL
            + "train(DataLoader(torch.ones(24, 4), batch_size=4, num_workers=2))\n"
            + "train(torch.ones(4, 2, 4), torch.compile(optimizer.step, backend='eager'))\nprint('trained')"
        )
        result = run(step_map.environment(plain()), "-c", script)
        assert (result.returncode, result.stdout) == (0, "trained\n")
        assert "UserWarning" not in result.stderr
        assert count(step_map) == 6 + 4
        assert slots_taken(step_map) == 1


class TestCounted:
    """A process that counts its own steps for a while, as inside a block of `autocap.tune`."""

    @pytest.mark.parametrize("before", ["", "import torch\n"])
    def test_optimiser_steps_inside_count_and_others_do_not(self, tiny_torch: Path, before: str) -> None:
        train = TRAIN.replace("\n", "\n    ").rstrip()
        script = (
            f"{before}from autocap.progress.steps.map import StepMap, counted\n"
            f"with StepMap.create() as one, counted(one):\n    {train}\n    print(one.read(0.0).count)\n"
            "o.step()\n"
            "with StepMap.create() as two, counted(two):\n    o.step()\n    o.step()\n    print(two.read(0.0).count)\n"
        )
        path = f"{tiny_torch}{os.pathsep}{Path(autocap.__file__).parent.parent}"
        result = run(plain(PYTHONPATH=path), "-c", script)
        assert (result.stdout, result.stderr) == ("trained\n5\n2\n", "")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("class OutOfMemoryError(RuntimeError): pass\nraise OutOfMemoryError('tried to allocate 2 GiB')", True),
        ("raise ValueError('no result') from RuntimeError('CUDA error: out of memory')", True),
        ("raise RuntimeError('shapes do not match')", False),
        ("raise SystemExit(1)", False),
    ],
)
def test_a_recurring_job_that_ends_for_want_of_memory_says_so(error: str, told: bool) -> None:
    with ValueFile.create() as values:
        ended = run(values.environment(plain()), "-c", error)
        assert ended.returncode == 1
        assert [one.name for one in values.read(0.0)] == [OUT_OF_MEMORY] * told
    assert ended.stderr == run(plain(), "-c", error).stderr  # its own last words are as they were


def test_a_map_that_is_made_later_counts_from_the_first_step_on(tmp_path: Path) -> None:
    path = Path("/dev/shm") / f"autocap-steps-2-{os.urandom(16).hex()}"
    counter = step_hook.StepCounter(str(path))
    for _ in range(100):
        counter.step()
    with StepMap.of_name(path, lambda process: True) as step_map:
        steps = 100
        while (reading := step_map.read(0.0)) is None:
            counter.step()
            steps += 1
        assert reading.count == steps
        counter.step()
        again = step_map.read(0.0)
        assert again.count == steps + 1


LOOKED_FOR = """
import sys
path, found = sys.argv[1], []
sys.addaudithook(lambda event, values: found.append(1) if event == "open" and values[0] == path else None)
from autocap.progress.steps.hook.sitecustomize import StepCounter
counter = StepCounter(path)
for _ in range(50_000): counter.step()
print(len(found))
"""


def test_a_map_that_is_never_made_is_looked_for_seldom(tmp_path: Path) -> None:
    child = run(plain(PYTHONPATH=os.pathsep.join(sys.path)), "-c", LOOKED_FOR, str(tmp_path / "nowhere"))
    assert child.stderr == ""
    assert 2 <= int(child.stdout) <= 100
