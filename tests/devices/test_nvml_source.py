"""The GPUs of a real process tree, as a driver that is a double lists them."""

import math
from dataclasses import dataclass, field, replace

import pytest

from autocap.config import RunConfig, TuneConfig
from autocap.devices.nvml.source import NvmlSource
from autocap.errors import DeviceError, DeviceUnavailable
from autocap.job.processes import tree
from autocap.metrics import Metric
from autocap.records import CapRange
from autocap.session.search_space import checker
from tests.doubles.jobs import PARENT, SLEEPING, has_a_working_child, job
from tests.doubles.waiting import eventually

CONFIG = RunConfig(command=("train",), tune=TuneConfig(metric=Metric(name="energy")))
OF_TWO = ", and of the 2 that the job may see"
RANGE = CapRange(min_w=100.0, max_w=400.0, default_w=300.0)


@dataclass(frozen=True)
class Gpu:
    index: int
    uuid: str
    cap_range: CapRange | None = RANGE
    name: str = "H100"
    minor_number: int | None = None
    mig: bool = False


@dataclass
class Driver:
    """Knows some GPUs, and who computes on them."""

    gpus: tuple[Gpu, ...] = (Gpu(0, "GPU-a"), Gpu(1, "GPU-b"))
    pids: dict[str, tuple[int, ...] | None] = field(default_factory=dict)
    busy: set[str] = field(default_factory=set)
    unreadable: tuple[str, ...] = ()

    def close(self) -> None:
        """Nothing is held."""

    def inventory(self) -> tuple[Gpu, ...]:
        return self.gpus

    def compute_pids(self, uuid: str) -> tuple[int, ...] | None:
        return self.pids.get(uuid, ())

    def is_busy(self, uuid: str) -> bool:
        return uuid in self.busy


def source(driver: Driver, config: RunConfig = CONFIG, *, attached: bool = False) -> NvmlSource:
    """A source that "opens" GPUs as their UUIDs."""
    return NvmlSource(config, driver, lambda uuids: uuids, checker(config.tune), attached=attached)


def test_a_job_has_no_gpus_until_it_computes_and_its_ranks_have_all_come() -> None:
    driver = Driver(gpus=(Gpu(0, "GPU-a"), Gpu(1, "GPU-b"), Gpu(2, "GPU-c")))
    with job(SLEEPING) as root, source(driver) as gpus:
        assert gpus.find(root, 0.0) is None
        driver.pids["GPU-b"] = (root.pid,)
        assert gpus.find(root, 1.0) is None
        driver.pids["GPU-a"] = (root.pid,)
        assert gpus.find(root, 4.0) is None
        assert gpus.find(root, 8.0) is None
        assert gpus.find(root, 9.0) == ("GPU-a", "GPU-b")


def test_a_job_that_computes_on_all_gpus_there_are_is_not_waited_for() -> None:
    driver = Driver()
    with job(SLEEPING) as root, source(driver) as gpus:
        driver.pids["GPU-b"] = (root.pid,)
        assert gpus.find(root, 1.0) is None
        driver.pids["GPU-a"] = (root.pid,)
        assert gpus.find(root, 1.5) == ("GPU-a", "GPU-b")


def test_where_the_driver_does_not_tell_who_computes_the_gpu_is_the_one_whose_load_began_with_the_job() -> None:
    driver = Driver(pids=dict.fromkeys(("GPU-a", "GPU-b")), busy={"GPU-a"})
    with job(SLEEPING) as root, source(driver) as gpus:
        assert gpus.find(root, 1.0) is None
        driver.busy.add("GPU-b")
        assert gpus.find(root, 2.0) is None  # it may yet come to more of them
        assert gpus.find(root, 7.0) == ("GPU-b",)


@pytest.mark.parametrize(
    ("attached", "busy", "said"),
    [
        (False, ("GPU-a", "GPU-b"), f"{OF_TWO} 2 have come into use since it began; pass --g"),
        (False, (), f"{OF_TWO} none has come into use since it began; pass --gpus"),
        (True, ("GPU-a",), "the driver does not tell who computes on the GPUs here, as in some containers; pass --g"),
    ],
)
def test_where_nothing_tells_which_gpu_a_job_uses_the_reason_is_the_true_one(attached, busy, said) -> None:
    driver = Driver(pids=dict.fromkeys(("GPU-a", "GPU-b")))
    with job(SLEEPING) as root, source(driver, attached=attached) as gpus:
        driver.busy.update(busy)
        with pytest.raises(DeviceError, match=said):
            gpus.find(root, math.inf)


def test_where_the_driver_does_not_tell_who_computes_the_only_gpu_of_a_job_is_its_own_once_it_is_loaded() -> None:
    driver = Driver(gpus=(Gpu(0, "GPU-a"),), pids={"GPU-a": None})
    with job(SLEEPING) as root, source(driver, attached=True) as gpus:
        with pytest.raises(DeviceError, match="does not tell who computes"):
            gpus.find(root, math.inf)
        driver.busy.add("GPU-a")
        assert gpus.find(root, math.inf) == ("GPU-a",)


def test_a_last_look_does_not_wait() -> None:
    driver = Driver()
    with job(SLEEPING) as root, source(driver) as gpus:
        assert gpus.find(root, math.inf) is None
        driver.pids["GPU-b"] = (root.pid,)
        assert gpus.find(root, math.inf) == ("GPU-b",)


def test_a_worker_below_the_process_is_found() -> None:
    with job(PARENT) as root:
        eventually(lambda: has_a_working_child(root))
        worker = tree(root)[1]
        with source(Driver(pids={"GPU-a": (worker.pid,)})) as gpus:
            assert gpus.find(root, math.inf) == ("GPU-a",)


def test_another_process_on_the_gpu_is_refused_unless_sharing_is_allowed() -> None:
    with job(SLEEPING) as root, job(SLEEPING) as other:
        driver = Driver(pids={"GPU-a": (root.pid, other.pid), "GPU-b": (other.pid,)})
        shared = f"GPU 0 is shared: PID {other.pid} computes on it as well.*--shared-gpu"
        with source(driver) as gpus, pytest.raises(DeviceError, match=shared):
            gpus.find(root, math.inf)
        with source(driver, replace(CONFIG, shared_gpu=True)) as gpus:
            assert gpus.find(root, math.inf) == ("GPU-a",)


def test_gpus_that_are_named_are_taken_before_the_job_computes_but_not_from_others() -> None:
    with job(SLEEPING) as root, job(SLEEPING) as other:
        driver = Driver(pids={"GPU-a": (other.pid,)})
        with source(driver, replace(CONFIG, gpus=("1",))) as gpus:
            assert gpus.find(root, 0.0) == ("GPU-b",)
        with source(driver, replace(CONFIG, gpus=("0", "1"))) as gpus, pytest.raises(DeviceError, match="GPU 0 is sha"):
            gpus.find(root, 0.0)


@pytest.mark.parametrize(
    ("driver", "change", "message"),
    [
        (Driver(gpus=()), {}, "the NVIDIA driver shows no GPU here"),
        (Driver(), {"gpus": ("2",)}, r"--gpus 2 is not there; this machine has 0 \(GPU-a\), 1 \(GPU-b\)"),
        (Driver(), {"tune": replace(CONFIG.tune, max_cap_w=500.0)}, "--max-cap 500 W is above the 400 W maximum"),
    ],
    ids=["no gpu", "no such gpu", "no such cap"],
)
def test_what_no_job_could_change_is_refused_before_it_starts(driver, change, message) -> None:
    with pytest.raises(DeviceUnavailable if "cap" not in message else DeviceError, match=message):
        source(driver, replace(CONFIG, **change))


def test_a_cap_that_only_some_gpus_take_is_not_refused_before_it_is_known_which_the_job_uses() -> None:
    driver = Driver(gpus=(Gpu(0, "GPU-a"), Gpu(1, "GPU-b", cap_range=replace(RANGE, max_w=700.0))))
    source(driver, replace(CONFIG, tune=replace(CONFIG.tune, max_cap_w=500.0)))


def test_before_a_job_those_that_are_named_are_opened_and_else_what_cuda_is_shown_or_the_only_one() -> None:
    named = replace(CONFIG, gpus=("1",))
    with source(Driver(), named) as gpus:
        assert gpus.ahead({"CUDA_VISIBLE_DEVICES": "0"}) == ("GPU-b",)
    with source(Driver()) as gpus:
        assert gpus.ahead({"CUDA_VISIBLE_DEVICES": "GPU-b,GPU-a"}) == ("GPU-a", "GPU-b")
        assert gpus.ahead({"CUDA_VISIBLE_DEVICES": "1"}) == ("GPU-b",)
        assert gpus.ahead({"CUDA_VISIBLE_DEVICES": ""}) is None
        assert gpus.ahead({}) is None
    with source(Driver(gpus=(Gpu(3, "GPU-c"),))) as gpus:
        assert gpus.ahead({}) == ("GPU-c",)


def test_before_a_job_whoever_computes_on_its_gpus_is_a_stranger() -> None:
    driver = Driver(pids={"GPU-a": (1,)})
    shared = pytest.raises(DeviceError, match="GPU 0 is shared: PID 1")
    with source(driver, replace(CONFIG, gpus=("0",))) as gpus, shared:
        gpus.ahead({})
    with source(driver, replace(CONFIG, gpus=("0",), shared_gpu=True)) as gpus:
        assert gpus.ahead({}) == ("GPU-a",)
    with source(driver, replace(CONFIG, gpus=("1",))) as gpus:
        assert gpus.ahead({}) == ("GPU-b",)
