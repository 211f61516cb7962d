from collections.abc import Iterator

import pytest


@pytest.fixture
def threads_put_back() -> Iterator[None]:
    """How many threads torch computes with, after a test as before."""
    import torch

    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
