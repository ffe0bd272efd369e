#!/bin/sh
# Builds gpu-memory-hook for a platform into a folder, with what Go says of it.
# Usage: build.sh GOARCH FOLDER, in the folder of go.mod.
set -eu
architecture=$1
folder=$2

# It runs on the host, and needs neither its libc nor any other file of it.
export CGO_ENABLED=0 GOOS=linux GOARCH="$architecture" GOFLAGS=-mod=readonly GOWORK=off
mkdir -p "$folder"
go build -trimpath -buildvcs=false -ldflags "-s -w" -o "$folder/gpu-memory-hook" ./gpu-memory-hook
go version -m "$folder/gpu-memory-hook" > "$folder/gpu-memory-hook.modules.txt"
