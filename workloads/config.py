"""What to train, how, and for how long. Importing this needs no torch."""

from dataclasses import dataclass
from pathlib import Path

from autocap.workloads import WorkloadUsageError
from autocap.workloads.models import Network

DEVICES = ("auto", "cpu", "cuda")
DATA = ("device", "loader")
PRECISIONS = ("fp32", "amp", "bf16")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """One training job. Raises WorkloadUsageError for sizes that the network cannot take.

    device: "cpu", "cuda" or "auto" (a GPU if torch sees one). batch_size: samples per step and process; samples: per
    epoch, of all processes together. image_size: pixels per side, or hours of load.
    iterations, epochs, seconds: training ends at whichever comes first; `None` is no limit, and all three `None` is one
    epoch. data: "device" makes each batch where it is used, "loader" in `workers` processes. host_share: share of a
    step that the host phase takes, in [0, 1). validate_every, checkpoint_every: iterations, `None` for never.
    precision: "amp" is float16 with loss scaling on a GPU and bfloat16 on a CPU, "bf16" bfloat16 everywhere;
        the recurrent layer of the load forecast stays in float32 on a CPU.
    threads: torch's CPU threads, `None` for its own choice.
    """

    network: Network
    device: str = "auto"
    batch_size: int
    image_size: int
    iterations: int | None = None
    epochs: int | None = None
    seconds: float | None = None
    samples: int
    seed: int = 0
    data: str = "device"
    workers: int = 2
    host_share: float = 0.0
    validate_every: int | None = None
    checkpoint_every: int | None = None
    checkpoint: Path | None = None
    precision: str = "fp32"
    channels_last: bool = False
    compiled: bool = False
    log_every: int = 20
    threads: int | None = None

    def __post_init__(self) -> None:
        network, size = self.network, self.image_size
        if size < network.smallest_image:
            raise WorkloadUsageError(
                f"--image-size {size} is too small for {network.name}; pass {network.smallest_image} pixels or more"
            )
        if self.batch_size == 1 and (network.smallest_single is None or size < network.smallest_single):
            larger = f", or an --image-size of {network.smallest_single} or more" if network.smallest_single else ""
            raise WorkloadUsageError(
                f"batch normalisation needs more than one value a channel: pass --batch-size 2 or more{larger}"
            )
        if self.channels_last and network.classes is None:
            raise WorkloadUsageError(f"--channels-last is for images, and {network.name} takes none")
        if (self.checkpoint is None) != (self.checkpoint_every is None):
            raise WorkloadUsageError("--checkpoint PATH and --checkpoint-every N go together: pass both or neither")

    def epoch_iterations(self, processes: int) -> int:
        """Whole batches in one epoch, for each process. Raises WorkloadUsageError when there is none."""
        batches = self.samples // (self.batch_size * processes)
        if batches == 0:
            of = f" in each of {processes} processes" if processes > 1 else ""
            raise WorkloadUsageError(
                f"--samples {self.samples} is less than one batch of {self.batch_size}{of}; pass a smaller --batch-size"
            )
        return batches

    def total_iterations(self, processes: int) -> int | None:
        """After how many iterations training ends, `None` when only time ends it."""
        epoch = self.epoch_iterations(processes)
        if self.epochs is not None:
            return self.epochs * epoch
        return epoch if self.iterations is None and self.seconds is None else self.iterations
