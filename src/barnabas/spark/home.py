"""A home for Spark from which its Python processes start in a quarter of the time.

Spark puts `$SPARK_HOME/python/lib/pyspark.zip` first on the path of every Python process that it starts, and
it starts some a stream and some a commit, beside those of the tasks. Python keeps no compiled modules of a
zip, so each of them compiles PySpark anew (0.9 s of CPU time rather than 0.2, measured). The same modules are
installed beside that zip. So Spark is given a home without it: links to the rest, in the user's cache. Where
nothing can be kept there, Spark starts as it does without.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

_LINKED = ("bin", "jars", "sbin")


def quick_home(environment: Mapping[str, str] = os.environ) -> str | None:
    """What SPARK_HOME should be; None to leave it as it is: set by the user, or not that of the wheel."""
    import pyspark

    real = Path(pyspark.__file__).parent
    if "SPARK_HOME" in environment or not (real / "python" / "lib" / "pyspark.zip").exists():
        return None
    try:
        cache = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        home = cache / "barnabas" / f"spark-{hashlib.sha256(str(real).encode()).hexdigest()[:12]}"
        home.mkdir(parents=True, exist_ok=True)
        for name in _LINKED:
            with suppress(FileExistsError):  # others may be making it, too
                (home / name).symlink_to(real / name)
    except (OSError, RuntimeError):  # a place to which nothing is written; a user without a home
        return None
    return str(home)
