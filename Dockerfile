# syntax=docker/dockerfile:1
# Build:  docker build -t turntable .
# Run:    docker run --network host -v /etc/turnserver.conf:/etc/turnserver.conf:ro turntable
# A relay needs its relay ports as they are: with the host's network there is no port mapping in between.

FROM debian:12-slim AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends \
        build-essential cmake ninja-build pkg-config libevent-dev libssl-dev libconfig-dev libidn-dev \
 && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN cmake -S /src -B /build -G Ninja -DCMAKE_BUILD_TYPE=Release -DTURN_TESTS=OFF -DCMAKE_INSTALL_PREFIX=/usr \
 && cmake --build /build \
 && cmake --install /build --prefix /out --strip

FROM debian:12-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends \
        libevent-2.1-7 libssl3 libconfig9 libidn12 \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --system --no-create-home --shell /usr/sbin/nologin turnserver
COPY --from=build /out/bin/turnserver /usr/bin/turnserver
COPY scripts/stun-ping /usr/bin/stun-ping
USER turnserver
EXPOSE 3478/udp
STOPSIGNAL SIGTERM
# One Binding request, which costs the server nothing and needs no credentials.
HEALTHCHECK --interval=30s --timeout=5s --start-period=5s CMD ["/usr/bin/stun-ping"]
ENTRYPOINT ["/usr/bin/turnserver", "--log-file=stdout", "--pidfile=/tmp/turnserver.pid"]
CMD ["-c", "/etc/turnserver.conf"]
