"""``python -m fxminify``, and the command ``minify``: Ctrl-C ends it with 130 from its first import on."""

import sys


def main() -> None:
    try:
        from fxminify.cli import main as command

        command(prog_name="minify")
    except KeyboardInterrupt:  # later ones are for the verbs
        print("Interrupted.", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
