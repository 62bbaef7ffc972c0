"""``python -m fxminify`` is ``minify``."""

from fxminify.cli import main

main(prog_name="minify")
