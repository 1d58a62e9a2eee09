# A node in a container: docker build -t barnabas . && docker run -p 9092:9092 -v barnabas:/var/lib/barnabas barnabas
#
# Settings are Kafka's, by the environment as in Kafka's own image: KAFKA_LOG_RETENTION_HOURS=24. Clients outside
# of the container must be told where it is reached: KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092.

FROM python:3.12-slim AS build
# the record kernel is compiled; without a compiler the pure-Python twin would serve
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY pyproject.toml setup.py README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --wheel-dir /wheels .

FROM python:3.12-slim
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels barnabas
# the directory stays empty: what a new home is given would make it somebody's, and the node would refuse it
RUN useradd --uid 10001 --no-create-home --home-dir /var/lib/barnabas barnabas \
    && install --directory --owner=barnabas --group=barnabas /var/lib/barnabas
COPY deploy/docker/server.properties /etc/barnabas/
USER 10001
VOLUME /var/lib/barnabas
EXPOSE 9092
STOPSIGNAL SIGTERM
# not by a client: it would go where advertised.listeners sends it, which need not be reached from in here
HEALTHCHECK --interval=10s --timeout=5s --start-period=5s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:9404/ready', timeout=4)"]
ENTRYPOINT ["barnabas"]
CMD ["serve", "--config", "/etc/barnabas/server.properties"]
