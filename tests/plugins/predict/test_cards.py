"""What `cards.json` says follows from what the cards are made of."""

import json
from pathlib import Path

import pytest

from autocap.plugins import predict
from autocap.plugins.predict.cards import cards

# Cores; boost clock, MHz; 16-bit operations per core and clock of units that sum up in 32 bits; how many fewer 32-bit
# ones there are; width of the memory's bus; its rate, Gbit/s per pin.
MADE_OF = {
    "V100 SXM2": (5120, 1530, 16, 8, 4096, 1.755),
    "V100 PCIe": (5120, 1370, 16, 8, 4096, 1.755),
    "T4": (2560, 1590, 16, 8, 256, 10.0),
    "Quadro RTX 6000": (4608, 1770, 16, 8, 384, 14.0),
    "Quadro RTX 8000": (4608, 1770, 16, 8, 384, 14.0),
    "A100 40GB PCIe": (6912, 1410, 32, 2, 5120, 2.43),
    "A100 40GB SXM": (6912, 1410, 32, 2, 5120, 2.43),
    "A100 80GB PCIe": (6912, 1410, 32, 2, 5120, 3.024),
    "A100 80GB SXM": (6912, 1410, 32, 2, 5120, 3.186),
    "RTX 3090": (10496, 1695, 4, 2, 384, 19.5),
    "RTX A6000": (10752, 1800, 8, 2, 384, 16.0),
    "A40": (10752, 1740, 8, 2, 384, 14.5),
    "A10": (9216, 1695, 8, 2, 384, 12.5),
    "RTX 4090": (16384, 2520, 4, 2, 384, 21.0),
    "RTX 6000 Ada": (18176, 2505, 8, 2, 384, 20.0),
    "L4": (7424, 2040, 8, 2, 192, 12.5),
    "L40S": (18176, 2520, 8, 2, 384, 18.0),
    "H100 PCIe": (14592, 1620, 32, 2, 5120, 3.186),  # the clock of matrices, below that of the rest
    "H100 SXM": (16896, 1830, 32, 2, 5120, 5.24),
}


@pytest.mark.parametrize("card", cards(), ids=lambda card: card.model)
def test_rates_are_units_by_clock_and_the_bandwidth_is_width_by_rate(card) -> None:
    cores, clock_mhz, per_clock, fewer, bits, gbit_s = MADE_OF[card.model]
    tensor = cores * clock_mhz * per_clock / 1e6
    assert card.tensor16_tflops == pytest.approx(tensor, rel=0.02)
    assert card.matrix32_tflops == pytest.approx(tensor / fewer, rel=0.02)
    assert card.bandwidth_gb_s == pytest.approx(bits * gbit_s / 8, rel=0.01)


def test_every_card_is_there_once_and_names_sources_that_the_file_has() -> None:
    found = json.loads((Path(predict.__file__).with_name("cards.json")).read_text())
    assert len({card.model for card in cards()}) == len(cards())
    assert {source for card in cards() for source in card.sources} == set(found["sources"])
    assert all((card.min_w or 1) < card.default_w for card in cards())
