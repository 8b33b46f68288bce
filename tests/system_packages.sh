#!/usr/bin/env bash
# Brings headless Chromium for the browser tests, where the system's package manager may be used.
# Elsewhere those tests are skipped, and pytest says so.
set -u
command -v chromium >/dev/null && command -v chromedriver >/dev/null && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "Installing chromium and chromium-driver for the browser tests."
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium chromium-driver >/dev/null && exit 0
fi
echo "No Chromium here and none could be installed: the browser tests will be skipped." >&2
exit 0
