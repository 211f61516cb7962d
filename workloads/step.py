"""One optimiser step: the model in its precision and memory layout, its loss and its optimiser."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.nn.parallel import DistributedDataParallel

from autocap.workloads.config import TrainConfig
from autocap.workloads.models import Network
from autocap.workloads.ranks import Ranks

_REFERENCE_BATCH = 256  # of Network.learning_rate
_MOMENTUM = 0.9
_WEIGHT_DECAY = 1e-4
_AUXILIARY_WEIGHT = 0.4  # as in the code of the authors of Inception v3; the paper names none


class Step:
    """A model in training. Called with a batch it makes one optimiser step and gives the loss before it."""

    def __init__(self, model: nn.Module, config: TrainConfig, ranks: Ranks, device: torch.device) -> None:
        scaled = config.precision == "amp" and device.type == "cuda"  # CPUs compute in bfloat16, which needs no scaling
        dtype = torch.float16 if scaled else torch.bfloat16
        self._autocast = torch.autocast(device.type, dtype, enabled=config.precision != "fp32")
        self._scaler = torch.amp.GradScaler(device.type, enabled=scaled)
        self._format = torch.channels_last if config.channels_last else torch.preserve_format
        self._plain = model.to(device, memory_format=self._format)  # type: ignore[call-overload]  # torch's stub lacks it
        self._optimizer = _optimizer(config.network, self._plain, config.batch_size * ranks.size)
        self._model = self._plain
        if ranks.size > 1:
            self._model = DistributedDataParallel(self._model, [device] if device.type == "cuda" else None)
        if config.compiled:
            self._model = torch.compile(self._model)

    def __call__(self, inputs: Tensor, targets: Tensor) -> Tensor:
        loss = self.gradients(inputs, targets)
        self._scaler.step(self._optimizer)
        self._scaler.update()
        return loss

    def gradients(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """The loss on a batch, and its gradients in place of the former ones; no optimiser step."""
        self._model.train()
        loss = self._loss(inputs, targets)
        self._optimizer.zero_grad()
        torch.autograd.backward(self._scaler.scale(loss))
        return loss.detach()

    def evaluate(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """The loss on a batch, without training on it."""
        self._model.eval()
        with torch.no_grad():
            return self._loss(inputs, targets)

    def state(self) -> dict[str, object]:
        """Weights and optimiser state, as a checkpoint holds them; names are those of the plain model."""
        return {"model": self._plain.state_dict(), "optimizer": self._optimizer.state_dict()}

    def _loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        if self._format is torch.channels_last:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        with self._autocast:
            outputs = self._model(inputs)
            if isinstance(outputs, tuple):
                logits, auxiliary = outputs
                return cross_entropy(logits, targets) + _AUXILIARY_WEIGHT * cross_entropy(auxiliary, targets)
            return mse_loss(outputs, targets) if targets.is_floating_point() else cross_entropy(outputs, targets)


def _optimizer(network: Network, model: nn.Module, batch_size: int) -> torch.optim.Optimizer:
    if network.classes is None:
        return torch.optim.Adam(model.parameters(), lr=network.learning_rate)
    return torch.optim.SGD(
        model.parameters(),
        lr=network.learning_rate * batch_size / _REFERENCE_BATCH,
        momentum=_MOMENTUM,
        weight_decay=_WEIGHT_DECAY,
    )
