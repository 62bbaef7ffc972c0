"""The square root of a negative number is a NaN with its sign bit set, which eager's is not."""

import torch
import torch.nn as nn

BACKEND = "inductor"
KIND = "divergence"
EXPECT = "output"
MIN_NODES = 2  # sqrt, and a call that reads the sign
CULPRIT = "sqrt"
SOURCE = "pytorch/pytorch#189808 (2026-07)"


class Spectrum(nn.Module):
    """Peaks of a spectrum, and on which side of zero each of them is."""

    def __init__(self) -> None:
        super().__init__()
        self.bands = nn.Conv1d(1, 3, 5, padding=2)

    def forward(self, wave: torch.Tensor) -> torch.Tensor:
        power = self.bands(wave)
        peaks = torch.sqrt(power).squeeze(0)
        return torch.where(torch.signbit(peaks), -1.0, 1.0) * power.abs()


def make():
    return Spectrum().eval(), (torch.randn(1, 1, 12),)
