"""``python -m fxminify`` is ``minify``."""

from .cli import main

main(prog_name="minify")
