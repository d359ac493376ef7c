#!/bin/sh
# Builds the stand-ins into a folder: build.sh FOLDER. Needs only a C compiler.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$1
flags="-std=gnu11 -O2 -g -Wall -Wextra -Werror -fPIC -shared -pthread"
mkdir -p "$out/nixl"

library() { # FILE SONAME SOURCES... [flags]
  file=$1 soname=$2
  shift 2
  "${CC:-cc}" $flags -Wl,-soname,"$soname" -Wl,-z,defs -o "$out/$file" "$@"
}

library libmx_fakes.so libmx_fakes.so "$here"/core/*.c
core="$here/loaded/loaded.c -L$out -lmx_fakes -ldl -Wl,-rpath,\$ORIGIN -fvisibility=hidden"
library libcuda.so.1 libcuda.so.1 "$here"/cuda/*.c $core
library libcudart.so.12 libcudart.so.12 "$here"/cudart/*.c -Wl,--version-script="$here/cudart/exports.map" $core
library libcufile.so.0 libcufile.so.0 "$here"/cufile/*.c $core
library libnvidia-ml.so.1 libnvidia-ml.so.1 "$here"/nvml/*.c -fvisibility=hidden
library nixl/libnixl_capi.so libnixl_capi.so "$here"/nixl/*.c "$here"/nixl/trampolines.S $core -Wl,-rpath,'$ORIGIN/..'
