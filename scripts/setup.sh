#!/usr/bin/env bash
# Makes this machine ready: .venv with pinned packages, Rookery itself, Stockfish and what the profile needs of the
# system: libnuma on a CPU, a C compiler and Python's headers on GPUs, where Triton compiles at run time.
# Does nothing, quickly, when nothing has changed. `make setup` calls it.
#
#   PYTHON=...            the interpreter to build .venv from (3.11 or 3.12)
#   ROOKERY_PROFILE=...   cpu or gpu; default: gpu where nvidia-smi lists one
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

TORCH_VERSION=2.13.0
TORCH_CPU_INDEX=https://download.pytorch.org/whl/cpu
# The oldest driver for CUDA 13, of which torch's build in requirements/gpu.txt is (table 3 of CUDA's release notes).
DRIVER=580
# Of requirements/gpu.txt: what is downloaded, which pip also keeps in its cache, and what lies in .venv afterwards.
DOWNLOAD_GB=5 INSTALLED_GB=11
STAMP=.venv/rookery-setup

say() { printf '%s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# Installs system packages, by their Debian names, where this user may; otherwise says what to type and fails.
system_packages() {
  local packages=("$@") runner=() install
  if [ "$(id -u)" != 0 ]; then runner=(sudo); fi
  if command -v apt-get >/dev/null; then
    install=(apt-get install -y -qq --no-install-recommends)
  elif command -v dnf >/dev/null; then
    packages=("${packages[@]/libnuma1/numactl-libs}") packages=("${packages[@]/libc6-dev/glibc-dev}")
    install=(dnf install -y -q) packages=("${packages[@]/%-dev/-devel}")
  elif command -v brew >/dev/null; then
    runner=() install=(brew install) packages=("${packages[@]/libnuma1/numactl}")
  else
    die "install ${packages[*]} with your package manager, then type: make setup"
  fi
  if [ "${runner[*]}" = sudo ] && ! sudo -n true 2>/dev/null; then
    die "this machine lacks ${packages[*]}, and this user may not install it. Type:
    sudo ${install[*]} ${packages[*]}
    make setup"
  fi
  say "installing ${packages[*]}"
  if [ "${install[0]}" = apt-get ]; then "${runner[@]}" apt-get update -qq; fi
  "${runner[@]}" "${install[@]}" "${packages[@]}" >&2
}

usable_python() {
  "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null
}

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3.11 python3.12 python3}; do
    if usable_python "$candidate"; then echo "$candidate"; return; fi
  done
  die "need Python 3.11 or 3.12${PYTHON:+, and PYTHON=$PYTHON is neither}; name one with: make setup PYTHON=/path/to/python3.11"
}

version_of() {
  "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])'
}

make_venv() {
  local python
  python=$(find_python)
  if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    # Debian splits venv off Python, under a name with the version in it.
    system_packages "python$(version_of "$python")-venv"
  fi
  say "creating .venv with $("$python" --version)"
  "$python" -m venv --clear .venv
}

install_cpu() {
  local torch="torch==$TORCH_VERSION+cpu"
  if [ "$(uname -s)" = Darwin ]; then
    die "vLLM's CPU build has no macOS wheels: run Rookery in a Linux container or machine"
  fi
  say "installing $torch"
  # Indexes that the user configured come first: a mirror may carry the CPU build.
  pip_install "$torch" || pip_install --index-url "$TORCH_CPU_INDEX" "$torch" || pip_failed
  say "installing $(grep -c '==' requirements/cpu.txt) pinned packages (a few minutes)"
  pip_install --require-hashes -r requirements/cpu.txt || pip_failed
}

install_gpu() {
  say "installing $(grep -c '==' requirements/gpu.txt) pinned packages, torch and vLLM for CUDA among them ($DOWNLOAD_GB GB to download)"
  pip_install --require-hashes -r requirements/gpu.txt || pip_failed
}

# Whether requirements/gpu.txt works here and fits, before it is downloaded.
check_gpu() {
  local torch driver free need=$((DOWNLOAD_GB + INSTALLED_GB))
  torch=$(sed -n 's/^torch==\([^ ]*\).*/\1/p' requirements/gpu.txt)
  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1) || true
  if [[ ! $driver =~ ^[0-9]+ ]]; then
    say "no NVIDIA driver answers here, so it is not checked; torch $torch needs $DRIVER or newer where it runs"
  elif [ "${BASH_REMATCH[0]}" -lt "$DRIVER" ]; then
    die "NVIDIA's driver is $driver, and torch $torch needs $DRIVER or newer: install that, or type: ROOKERY_PROFILE=cpu make setup"
  fi
  free=$(($(df -Pk . | awk 'NR == 2 { print $4 }') * 1024 / 1000000000))
  [ "$free" -ge "$need" ] ||
    die "$free GB are free in $PWD, and the packages for GPUs need $need ($DOWNLOAD_GB downloaded, $INSTALLED_GB installed)"
}

# The Debian packages that Triton's compiler and headers come from, where they are missing.
missing_for_triton() {
  local compiler headers
  compiler=${CC:-$(command -v gcc || command -v clang || true)}
  echo '#include <stdlib.h>' | "${compiler:-none}" -fsyntax-only -xc - 2>/dev/null || echo gcc libc6-dev
  headers=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("include"))')
  [ -f "$headers/Python.h" ] || echo "python$(version_of .venv/bin/python)-dev"
}

# Most modules are never imported, so Python compiles each on its first import, unless it may not write that down.
pip_install() {
  local options=(--disable-pip-version-check --no-deps)
  [ -n "${PYTHONDONTWRITEBYTECODE:-}" ] || options+=(--no-compile)
  .venv/bin/python -m pip install "${options[@]}" "$@" 2>.venv/setup.log | progress
}

pip_failed() {
  cat .venv/setup.log >&2
  die "pip could not install the above; once mended, type: make setup"
}

# One moving line of pip's chatter on a terminal, nothing elsewhere.
progress() {
  if [ -t 2 ]; then
    awk '{ printf "\r\033[K%.78s", $0; fflush() } END { printf "\r\033[K" }' >&2
  else
    cat >/dev/null
  fi
}

find_stockfish() {
  # Debian puts it into /usr/games, which not every PATH names.
  PATH="$PATH:/usr/games:/usr/local/games:/opt/homebrew/bin" command -v stockfish
}

profile=${ROOKERY_PROFILE:-$(nvidia-smi -L 2>/dev/null | grep -q GPU && echo gpu || echo cpu)}
[ "$profile" = cpu ] || [ "$profile" = gpu ] || die "ROOKERY_PROFILE=$profile: it is cpu or gpu"

# The folder belongs to the key: an environment that was moved does not work.
key=$({ echo "$profile $PWD"; cat "requirements/$profile.txt" pyproject.toml scripts/setup.sh; } | sha256sum)

if [ -n "${PYTHON:-}" ] && has=$(version_of .venv/bin/python 2>/dev/null); then
  python=$(find_python)
  [ "$has" = "$(version_of "$python")" ] ||
    die "PYTHON=$PYTHON is Python $(version_of "$python"), .venv has $has; for a new one: rm -rf .venv .trainers"
fi

if [ "$(cat "$STAMP" 2>/dev/null)" != "$key" ]; then
  [ "$profile" = cpu ] || check_gpu
  if [ ! -x .venv/bin/python ] || ! .venv/bin/python -c '' 2>/dev/null; then make_venv; fi
fi

missing=()
find_stockfish >/dev/null || missing+=(stockfish)
if [ "$profile" = gpu ]; then
  read -r -d '' -a needed < <(missing_for_triton) || true
  missing+=(${needed[@]+"${needed[@]}"})
else
  # vLLM's CPU build links against it.
  .venv/bin/python -S -c 'import ctypes; ctypes.CDLL("libnuma.so.1")' 2>/dev/null || missing+=(libnuma1)
fi
if [ ${#missing[@]} -gt 0 ]; then system_packages "${missing[@]}"; fi
find_stockfish >/dev/null || die "stockfish was installed, but is not on the PATH"

if [ "$(cat "$STAMP" 2>/dev/null)" != "$key" ]; then
  "install_$profile"
  say "installing Rookery itself"
  pip_install -e . || pip_failed
  echo "$key" >"$STAMP"
fi
say "ready: .venv ($profile), $(find_stockfish)"
