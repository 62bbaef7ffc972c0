"""``python -m fxminify``, and the command ``minify``: Ctrl-C ends it with 130 from its first import on."""

import gc
import sys

#: So many new objects are made before they are looked through. What a command imports stays, and to look through it
#: again and again is a tenth of the time that a short command takes.
NEW_OBJECTS = 100_000


def main() -> None:
    gc.set_threshold(NEW_OBJECTS)
    try:
        from fxminify.cli import main as command

        command(prog_name="minify")
    except KeyboardInterrupt:  # later ones are for the verbs
        print("Interrupted.", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
