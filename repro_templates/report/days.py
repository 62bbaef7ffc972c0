"""An SVG picture of how often something was seen: a bar for each of the last days."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta

from ...backends.drawing.svg import text
from ...store.text import count

#: The most days that are drawn, and the fewest: of one day alone a bar would be as wide as the picture.
MOST, FEWEST = 90, 14
_WIDTH, _HEIGHT = 640.0, 130.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 56.0, 6.0, 12.0, 24.0


def days(counts: Mapping[str, int], *, label: str) -> str:
    """The bars of ``counts``, which are by day (ISO), up to the last day that is counted. Empty without one."""
    known = {day: number for text, number in counts.items() if (day := _day(text)) is not None and number > 0}
    if not known:
        return ""
    last = max(known)
    shown = min(max((last - min(known)).days + 1, FEWEST), MOST)
    first = last - timedelta(days=min(shown - 1, last.toordinal() - 1))
    most = max(number for day, number in known.items() if day >= first)
    step, tall = (_WIDTH - _LEFT - _RIGHT) / shown, _HEIGHT - _TOP - _BOTTOM
    floor = _TOP + tall
    parts = [
        f'<svg class="curve" role="img" aria-label="{text(label, 300)}" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}">',
        f'<path class="grid" d="M{_LEFT:g} {_TOP:g}H{_WIDTH - _RIGHT:g}M{_LEFT:g} {floor:g}H{_WIDTH - _RIGHT:g}"/>',
        f'<text class="end" x="{_LEFT - 6:g}" y="{_TOP + 4:g}">{most:,}</text>',
        f'<text class="end" x="{_LEFT - 6:g}" y="{floor + 4:g}">0</text>',
        f'<text x="{_LEFT + 36:g}" y="{_HEIGHT - 6:g}">{first.isoformat()}</text>',
        f'<text x="{_WIDTH - _RIGHT - 36:g}" y="{_HEIGHT - 6:g}">{last.isoformat()}</text>',
    ]
    for day, number in sorted(known.items()):
        if day < first:
            continue
        high = max(tall * number / most, 2.0)
        x = _LEFT + step * (day - first).days
        parts.append(
            f'<rect class="bar" x="{x + step * 0.1:.1f}" y="{floor - high:.1f}" width="{step * 0.8:.1f}" '
            f'height="{high:.1f}"><title>{day.isoformat()}: {count(number, "time")}</title></rect>'
        )
    return "\n".join([*parts, "</svg>"])


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None
