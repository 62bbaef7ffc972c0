"""A small DenseNet whose second transition Inductor cannot lower: powers of a negative number.

Nothing here knows of fxminify.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class DenseLayer(nn.Module):
    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.conv = nn.Conv2d(channels, growth, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, self.conv(F.relu(self.norm(x)))], 1)


class Fading(nn.Module):
    """Multiplies the channels by 1, -0.5, 0.25 and so on."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.logspace(0, x.shape[1] - 1, x.shape[1], base=-0.5)[:, None, None]


class DenseNet(nn.Module):
    def __init__(self, growth: int = 4, blocks: int = 3, depth: int = 6, classes: int = 10) -> None:
        super().__init__()
        channels = 8
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        layers: list[nn.Module] = []
        for block in range(blocks):
            for _ in range(depth):
                layers.append(DenseLayer(channels, growth))
                channels += growth
            if block == 0:
                layers += [nn.Conv2d(channels, channels // 2, 1), nn.AvgPool2d(2)]
                channels //= 2
            elif block == 1:
                layers.append(Fading())
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(channels, classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.stem(image)).mean((2, 3)))


if __name__ == "__main__":
    torch.manual_seed(0)
    model = torch.compile(DenseNet().eval())
    with torch.no_grad():
        print(model(torch.randn(2, 3, 16, 16)).argmax(1))
