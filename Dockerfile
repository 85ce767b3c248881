# A container with the katas, their grader and a CUDA compiler. It needs no GPU:
#
#   docker build --tag katas .
#   docker run --rm -it --volume kata-work:/katas/work --volume kata-record:/record katas
#
# The two volumes keep your files and your record. With an NVIDIA GPU and its container toolkit, add torch, which has
# the baselines (3 GB), and the GPU:
#
#   docker build --tag katas --build-arg TORCH=1 .
#   docker run --gpus all ...
#
# Elsewhere than on Linux the same container runs in Docker Desktop: on macOS and Windows without a GPU.

# What a machine needs before `make grade`. A development container stops here: it uses the clone that it is opened in.
FROM debian:bookworm-slim AS tools
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates g++ git less make nano python3 python3-venv vim-tiny \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --shell /bin/bash --uid 1000 learner \
    && mkdir /katas /record \
    && chown learner: /katas /record
ENV LANG=C.UTF-8 KATA_DATA=/record
USER learner

FROM tools
WORKDIR /katas
COPY --chown=learner . .
ARG TORCH=0
# nvcc comes as Python wheels. The grades show that the compiler and the simulator work here.
RUN make grade PIP_FLAGS=--no-cache-dir \
    && if [ "$TORCH" = 1 ]; then make torch PIP_FLAGS=--no-cache-dir; fi \
    && mkdir -p work
ENV PATH=/katas/.venv/bin:$PATH
CMD ["bash", "-c", "kata next; exec bash"]
