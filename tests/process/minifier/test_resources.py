"""What the captures of one call share."""

from dataclasses import replace
from pathlib import Path

import indexes
import pytest
from agreed import agreed

from fxminify.minifier.oracle import tasks
from fxminify.minifier.sandbox.launcher import BackendImportError
from fxminify.minifier.sandbox.pool import Ended
from fxminify.minifier.session.options import MinifyOptions
from fxminify.minifier.session.resources import SharedResources

EAGER = {"name": "eager", "how": "registered", "target": "eager"}


@pytest.mark.slow
def test_captures_of_one_backend_share_its_imports() -> None:
    first = replace(indexes.chain(["sin"]), backend=EAGER)
    other = replace(first, backend={**EAGER, "name": "aot_eager", "target": "aot_eager"})
    with SharedResources(MinifyOptions()) as resources:
        pool = resources.workers(agreed(first))
        assert pool.submit("observe", tasks.observe_argument(first, "direct"), timeout=60).result().ended is Ended.DONE
        assert resources.workers(agreed(replace(indexes.chain(["cos"]), backend=EAGER))) is pool
        assert pool.submit("observe", tasks.observe_argument(first, "direct"), timeout=60).result().ended is Ended.DONE
        assert resources.workers(agreed(other)) is not pool


MODULE = """
from torch._dynamo import register_backend


@register_backend
def passes(gm, inputs):
    return gm.forward


def plain(gm, inputs):
    return gm.forward
"""


def test_backends_of_one_module_share_its_imports(tmp_path: Path) -> None:
    """Whatever name and options they have; one that the module does not register is refused as it is alone."""
    (tmp_path / "two_backends.py").write_text(MODULE)
    named = {"name": "passes", "how": "registered", "target": "passes", "module": "two_backends"}
    one = replace(indexes.chain(["sin"]), backend={**named, "search_path": [str(tmp_path)]})
    other = {
        **one.backend,
        "name": "plain",
        "how": "attribute",
        "module": "",
        "target": {"import": ["two_backends", "plain"]},
    }
    absent = {**one.backend, "name": "absent", "target": "absent"}
    with SharedResources(MinifyOptions()) as resources:
        pool = resources.workers(agreed(one))
        for backend in ({**one.backend, "options": {"dict": [["fast", True]]}}, other, one.backend):
            case = replace(one, backend=backend)
            assert resources.workers(agreed(case)) is pool
            assert (
                pool.submit("observe", tasks.observe_argument(case, "direct"), timeout=60).result().ended is Ended.DONE
            )
        with pytest.raises(BackendImportError, match="importing two_backends registers no backend called 'absent'"):
            resources.workers(agreed(replace(one, backend=absent)))
