"""The picture of how often something was seen."""

from __future__ import annotations

import re

from fxminify.repro_templates.report.days import days


def bars(svg: str) -> list[tuple[str, float]]:
    """What each bar says, and how high it is."""
    found = re.findall(r'<rect class="bar"[^>]* height="([\d.]+)"><title>([^<]*)</title>', svg)
    return [(said, float(height)) for height, said in found]


def test_each_day_has_a_bar_as_high_as_it_was_seen_often() -> None:
    svg = days({"2026-11-01": 10, "2026-11-20": 40, "2026-11-21": 1}, label="Seen <51> times")
    assert [said for said, _ in bars(svg)] == [
        "2026-11-01: 10 times", "2026-11-20: 40 times", "2026-11-21: 1 time",
    ]  # fmt: skip
    low, high, least = (height for _, height in bars(svg))
    assert (round(high / low, 1), least) == (4.0, 2.4)
    assert 'aria-label="Seen &lt;51&gt; times"' in svg


def test_only_the_last_days_are_drawn() -> None:
    svg = days({"2020-01-01": 1000, "2026-11-20": 1}, label="")
    assert [said for said, _ in bars(svg)] == ["2026-11-20: 1 time"]
    assert "2026-08-23" in svg


def test_what_is_no_day_is_left_out() -> None:
    assert days({"yesterday": 3, "0001-01-02": 0}, label="") == ""
    assert [said for said, _ in bars(days({"0001-01-02": 3, "<b>": 9}, label=""))] == ["0001-01-02: 3 times"]
