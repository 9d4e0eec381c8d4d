# The image, for those who have a container engine:
#
#   docker buildx build --platform linux/amd64,linux/arm64 \
#     --build-arg KUBEVITALS_REVISION="$(git rev-parse HEAD)" \
#     --build-arg KUBEVITALS_CREATED="$(TZ=UTC0 git log -1 --date=iso-strict-local --format=%cd)" \
#     --build-arg SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)" --tag kubevitals .
#
# `cargo xtask image` makes the same image without one: the files come from that command here too,
# and a test compares the rest. The build stage runs on the machine's own platform and
# cross-compiles.
FROM --platform=$BUILDPLATFORM docker.io/library/rust:1.95.0-bookworm AS build
ARG BUILDARCH
ARG TARGETARCH
# Compilers for the other architecture. In layers of their own, so that a change of the source does
# not repeat them.
RUN set -eu; \
    test "$BUILDARCH" != "$TARGETARCH" || exit 0; \
    case "$TARGETARCH" in \
        amd64) packages="gcc-x86-64-linux-gnu libc6-dev-amd64-cross" ;; \
        arm64) packages="gcc-aarch64-linux-gnu libc6-dev-arm64-cross" ;; \
        *) echo "no image for $TARGETARCH"; exit 1 ;; \
    esac; \
    apt-get update -qq; \
    apt-get install -y -qq --no-install-recommends $packages; \
    rm -rf /var/lib/apt/lists/*
WORKDIR /build/kubevitals
COPY rust-toolchain.toml ./
RUN set -eu; \
    case "$TARGETARCH" in amd64) machine=x86_64 ;; arm64) machine=aarch64 ;; esac; \
    rustup target add "$machine-unknown-linux-gnu"
COPY . .
ARG SOURCE_DATE_EPOCH
ARG KUBEVITALS_REVISION
# What was compiled and downloaded stays on the builder between builds.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/build/target,id=kubevitals-target-$TARGETARCH \
    CARGO_TARGET_DIR=/build/target cargo xtask image --arch "$TARGETARCH" -o rootfs --to /build/root

FROM scratch
ARG KUBEVITALS_REVISION
ARG KUBEVITALS_CREATED
COPY --from=build /build/root/ /
ENV PATH=/bin
WORKDIR /
USER 65532:65532
ENTRYPOINT ["/bin/kubevitals"]
LABEL org.opencontainers.image.title="kubevitals" \
      org.opencontainers.image.description="Reads the vital signs of a Kubernetes cluster" \
      org.opencontainers.image.source="https://github.com/kubevitals/kubevitals" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="$KUBEVITALS_REVISION" \
      org.opencontainers.image.created="$KUBEVITALS_CREATED"
