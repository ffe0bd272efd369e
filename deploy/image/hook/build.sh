#!/bin/sh
# Builds nvidia-cdi-hook for a platform into a folder, with its version, the modules in it and their licences.
# Usage: build.sh GOARCH FOLDER, in the folder of go.mod.
set -eu
architecture=$1
folder=$2
module=github.com/NVIDIA/nvidia-container-toolkit
information=$module/internal/info

# The hook loads NVML, so it needs cgo, and a C compiler of the platform that it is for.
export CGO_ENABLED=1 GOOS=linux GOARCH="$architecture" GOFLAGS=-mod=readonly GOWORK=off
if [ "$architecture" != "$(go env GOHOSTARCH)" ]; then
  case $architecture in
    amd64) triple=x86_64-linux-gnu packages="gcc-x86-64-linux-gnu libc6-dev-amd64-cross" ;;
    arm64) triple=aarch64-linux-gnu packages="gcc-aarch64-linux-gnu libc6-dev-arm64-cross" ;;
    *) echo "there is no driver by NVIDIA for $architecture: choose amd64 or arm64" >&2; exit 2 ;;
  esac
  if ! command -v "$triple-gcc" >/dev/null; then
    apt-get update -qq
    # shellcheck disable=SC2086 # two packages, two words
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages
  fi
  export CC="$triple-gcc"
fi

mkdir -p "$folder/licenses"
version=$(go list -m -f '{{.Version}}' "$module")
# go-nvml leaves NVML's symbols open until they are called, so that the hook also runs where NVML is not.
go build -trimpath -buildvcs=false \
  -ldflags "-s -w -extldflags=-Wl,-z,lazy -X $information.version=${version#v}" \
  -o "$folder/nvidia-cdi-hook" "$module/cmd/nvidia-cdi-hook"
echo "${version#v}" > "$folder/nvidia-cdi-hook.version"
go version -m "$folder/nvidia-cdi-hook" > "$folder/modules.txt"

cp "$(go env GOROOT)/LICENSE" "$folder/licenses/std.LICENSE"
awk '$1 == "mod" || $1 == "dep" { print $2 }' "$folder/modules.txt" | while read -r one; do
  mkdir -p "$folder/licenses/$one"
  found=$(go list -m -f '{{.Dir}}' "$one")
  find "$found" -maxdepth 1 -type f \
    \( -iname 'license*' -o -iname 'licence*' -o -iname 'copying*' -o -iname 'notice*' -o -iname 'third_party*' \) \
    -exec cp {} "$folder/licenses/$one/" \;
done
