#!/usr/bin/env bash
# Brings headless Chromium for the browser tests and an sshd for the ssh tests, where the system's package manager may
# be used. Elsewhere those tests are skipped, and pytest says so.
set -u
PATH="$PATH:/usr/sbin"
missing=()
command -v chromium >/dev/null && command -v chromedriver >/dev/null || missing+=(chromium chromium-driver)
command -v sshd >/dev/null && command -v ssh >/dev/null || missing+=(openssh-server openssh-client)
[ ${#missing[@]} = 0 ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "Installing ${missing[*]} for the tests."
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null && exit 0
fi
echo "Not here, and could not be installed: ${missing[*]}. The tests that need them will be skipped." >&2
exit 0
