"""The terminal of 80 columns on which `docs/terminal.md` is recorded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from real_failures import skip_if_gone

from fxminify.docs import terminal


def masked(text: str) -> str:
    """Without what depends on the machine: versions, positions in PyTorch, and how many queries two workers took."""
    text = re.sub(r"\d+ queries", "N queries", text)
    text = re.sub(r"\[\d+ frames? of PyTorch\]", "[frames]", text)
    text = re.sub(r"(\.py|\.cpp):\d+([: )])", r"\1:N\2", text)
    return re.sub(r"(torch|Python) \d+\.\d+\.\d+(\+\w+)?", r"\1 V", text)


@pytest.mark.slow
def test_the_recording_is_what_the_commands_print() -> None:
    skip_if_gone("207_scheduler_cumsum_scalar")
    assert masked(terminal.recording()).splitlines() == masked(terminal.PAGE.read_text()).splitlines()


def test_a_screen_shows_what_stands_there_at_the_end() -> None:
    assert terminal.screen("50 %\r100 %\r\n\x1b[31mred\x1b[0m  \r\ngone\r\x1b[2K") == "100 %\nred\n"


def test_a_command_finds_a_terminal_of_80_columns(tmp_path: Path) -> None:
    said = terminal.at_a_terminal("test -t 0 && test -t 1 && stty size && read -r line; exit ${line}", tmp_path, "7\n")
    assert said[0] == 7
    assert "50 80\r\n" in said[1]


def test_frames_of_pytorch_are_folded_and_paths_masked(tmp_path: Path) -> None:
    text = f'''  File "{tmp_path}/a.py", line 1, in f
    g()
  File "/opt/lib/site-packages/torch/a.py", line 1, in g
    h()
    ^^^
  File "/opt/lib/site-packages/torch/b.py", line 2, in h
ValueError: in /opt/lib/site-packages/torch/b.py
'''
    assert (
        terminal.tidy(text, tmp_path)
        == """  File "a.py", line 1, in f
    g()
  [2 frames of PyTorch]
ValueError: in site-packages/torch/b.py
"""
    )
