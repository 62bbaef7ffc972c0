"""What the captures of one call share."""

from dataclasses import replace

import indexes

from fxminify.minifier.oracle import tasks
from fxminify.minifier.sandbox.pool import Ended
from fxminify.minifier.session.options import MinifyOptions
from fxminify.minifier.session.resources import SharedResources

EAGER = {"name": "eager", "how": "registered", "target": "eager"}


def test_captures_of_one_backend_share_its_imports() -> None:
    first = replace(indexes.chain(["sin"]), backend=EAGER)
    other = replace(first, backend={**EAGER, "name": "aot_eager", "target": "aot_eager"})
    with SharedResources(MinifyOptions()) as resources:
        pool = resources.workers(first)
        assert pool.submit("observe", tasks.observation(first, "direct"), timeout=60).result().ended is Ended.DONE
        assert resources.workers(replace(indexes.chain(["cos"]), backend=EAGER)) is pool
        assert pool.submit("observe", tasks.observation(first, "direct"), timeout=60).result().ended is Ended.DONE
        assert resources.workers(other) is not pool
