"""``python -m fxminify``, and the command ``minify``: Ctrl-C ends it with 130 from its first import on."""

import atexit
import gc
import sys

#: So many new objects are made before they are looked through for garbage: more than a short command makes. What it
#: imports stays. To look through that while it works, and once more when Python ends, is up to a fifth of its time.
NEW_OBJECTS = 300_000


def main() -> None:
    gc.set_threshold(NEW_OBJECTS)
    atexit.register(gc.freeze)
    try:
        from fxminify.cli import main as command

        command(prog_name="minify")
    except KeyboardInterrupt:  # later ones are for the verbs
        print("Interrupted.", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
