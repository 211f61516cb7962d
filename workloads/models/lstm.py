"""The load forecast of Caspart et al. 2022, section 3: a recurrent network with 48 hidden units.

9,792 parameters in the recurrent layer, the paper's 9.79K, and 49 in the output layer.
"""

import torch
from torch import Tensor, nn

_UNITS = 48


class LoadForecast(nn.Module):
    """From a window of hourly load to the hours of the window that follows.

    Takes loads, shape (n, hours); gives forecasts, shape (n, hours): hour i of the output is for `hours` after hour i
    of the input, and has seen the input up to hour i.
    """

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(1, _UNITS, batch_first=True)
        self.head = nn.Linear(_UNITS, 1)

    def forward(self, load: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):  # CPUs without AVX-512 have no bfloat16 LSTM; GPUs are not concerned
            hidden, _ = self.recurrent(load.unsqueeze(-1))
        forecast: Tensor = self.head(hidden).squeeze(-1)
        return forecast
