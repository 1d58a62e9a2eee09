"""This project's own settings, beside Kafka's: they begin with `barnabas.`, and Kafka has none of them.

They come from the same places (`--set barnabas.metrics.listen=...`, `KAFKA_BARNABAS_METRICS_LISTEN`, a file),
have rows as in broker.py, and are described by DescribeConfigs if they are set. None of them changes stored
data: a directory can be moved to Apache Kafka under any of their values.
"""

from __future__ import annotations

from barnabas.core.settings.table import Table

_ROWS = """\
barnabas.allow.unenforced.security boolean false - fixed
barnabas.fence.by.socket boolean true - fixed
barnabas.log.format string text {text,json} fixed
barnabas.metrics.listen string null filled fixed"""

OWN = Table(_ROWS)
