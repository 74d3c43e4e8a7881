#!/bin/bash
# The browser test: unit tests of the pages, then Chromium against real servers on free ports: the demo, rooms, the chat,
# TLS, `veche dev`, templates in PHP, the admin page, a plain EventSource. Screenshots go to target/browser/. Needs node,
# chromium, php, python3, curl, nc, openssl; see CONTRIBUTING.md.
set -euo pipefail
cd "$(dirname "$0")"

[[ -d node_modules/playwright-core ]] || npm ci --no-audit --no-fund --silent
../setup/centrifuge_page.sh || echo "SKIPPED: npm centrifuge for pages can't be had, and so most of the test of examples/chat"
report=$(node --test --test-reporter=tap unit/) || { echo "$report"; exit 1; }
grep -E '^# (pass|skipped) ' <<< "$report"

source ../demo_server.sh
export VECHE_SHOTS=$target/browser
node --test --test-reporter=spec --test-concurrency=1 browser.test.mjs rooms.test.mjs chat.test.mjs tls.test.mjs \
    dev.test.mjs php.test.mjs admin.test.mjs events.test.mjs
echo "screenshots: $VECHE_SHOTS"
