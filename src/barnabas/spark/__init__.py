"""Topics as Spark's tables: `spark.read.format("barnabas")`, for any Kafka. Only here is pyspark imported."""
