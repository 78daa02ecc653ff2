"""One thread: these tensors are too small for two, and other work may want the second core."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("torch"):
    import torch

    torch.set_num_threads(1)
