"""Settings of this project's own, beside Kafka's: they begin with `barnabas.`, and Kafka knows none of them.

They come from the same places (`--set barnabas.metrics.listen=...`, `KAFKA_BARNABAS_METRICS_LISTEN`, a file),
in rows as in broker.py, and are described by DescribeConfigs where they are set. None of them changes what is
stored: a directory moves to Apache Kafka whatever they say.
"""

from __future__ import annotations

from barnabas.core.settings.table import Table

_ROWS = """\
barnabas.allow.unenforced.security boolean false - fixed
barnabas.fence.by.socket boolean true - fixed
barnabas.log.format string text {text,json} fixed
barnabas.metrics.listen string null filled fixed"""

OWN = Table(_ROWS)
