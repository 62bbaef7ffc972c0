"""Print an ONNX model as text, or draw it: ``python -m fxminify.backends.shipped.onnxrt MODEL.onnx [-o MODEL.svg]``."""

from __future__ import annotations

import argparse
from pathlib import Path

from ....store import outputs
from . import options


def main() -> None:
    """Print the model, or write its picture."""
    parser = argparse.ArgumentParser(
        prog="python -m fxminify.backends.shipped.onnxrt", description="Look at an ONNX model."
    )
    parser.add_argument("model", help="an .onnx file")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.svg", help="write a picture instead of text")
    parser.add_argument("--weights", action="store_true", help="the values of small floating-point initializers too")
    args = parser.parse_args()
    try:
        options.require()
        from . import listing, picture

        model = listing.load(args.model)
        if args.output is None:
            print(listing.text(model, weights=args.weights), end="")
        else:
            outputs.write(args.output, picture.svg(model, title=Path(args.model).name).encode(), force=True)
    except (OSError, ValueError, ImportError) as error:
        parser.exit(1, f"{error}\n")


if __name__ == "__main__":
    main()
