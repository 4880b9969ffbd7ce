# JetPack 6 on Jetson Orin: arm64, Ubuntu 22.04, CUDA 12.6, Python 3.10.  The context is the folder of `make dist`:
#     make dist && docker build --platform linux/arm64 -f docs/packaging/jetpack6.Dockerfile -t gensor-kernels dist
# `--target runtime` leaves the tuner and g++ out.
ARG BASE=nvcr.io/nvidia/l4t-jetpack:r36.4.0
FROM ${BASE} AS runtime
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3-venv \
    && rm -rf /var/lib/apt/lists/*
ENV VIRTUAL_ENV=/opt/gensor-kernels
ENV PATH=$VIRTUAL_ENV/bin:$PATH
COPY *.whl /tmp/wheel/
RUN python3 -m venv "$VIRTUAL_ENV" \
    && pip install --no-cache-dir "$(echo /tmp/wheel/*.whl)[cu12]" \
    && python -c "import gensor_kernels"
CMD ["python"]

FROM runtime AS tuner
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
# One small row: what cannot compile, or execute on the emulator, ends the build here.
RUN pip install --no-cache-dir "$(echo /tmp/wheel/*.whl)[tune]" \
    && printf 'op,dtype,m,n,k\nmatmul,fp16,64,64,64\n' > /tmp/row.csv \
    && gensor-tune --arch sm_87 --shapes /tmp/row.csv --db /tmp/row.db --measure never \
    && rm -r /tmp/row.csv /tmp/row.db /root/.cache/gensor-kernels
CMD ["gensor-tune", "doctor"]
