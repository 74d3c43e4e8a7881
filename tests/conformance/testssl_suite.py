#!/usr/bin/env python3
"""Tests a TLS listener with default settings by testssl.sh, which must have no finding above LOW.

Findings that are due to the test's own certificate authority are ignored.
"""

import collections
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import veche

CONFIG = """
[server]
log = "warn"

[[listen]]
address = "127.0.0.1:{port}"
tls = { certificate = "{folder}/own.pem", key = "{folder}/own.key" }

[[route]]
path = "/*"
handler = "static"
root = "{folder}/www"
"""

ABOVE_LOW = {"MEDIUM", "HIGH", "CRITICAL", "FATAL"}

# Findings that are due to the test's certificate, which is not from a public authority and whose
# name is in no public list.
OF_THE_TEST = {
    "cert_chain_of_trust": "the test's own authority",
    "cert_revocation": "the test's own authority has no list",
    "cert_crlDistributionPoints": "the test's own authority has no list",
    "cert_ocspURL": "the test's own authority has no responder",
    "overall_grade": "graded by the chain of trust",
    "grade_cap_reason_1": "graded by the chain of trust",
}


def openssl(folder, *arguments):
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def certificates(folder):
    """Creates an authority and a certificate for localhost, which is valid for about as long as public ones. Returns
    the PEM texts of the chain and of the key."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl(folder, "req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "90", "-subj", "/CN=Test")
    openssl(folder, "req", *key, "-keyout", "own.key", "-out", "own.csr", "-subj", "/CN=localhost")
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth\n")
    signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "89", "-extfile", "names"]
    openssl(folder, "x509", "-req", "-in", "own.csr", *signed, "-out", "own.pem")
    return (folder / "own.pem").read_bytes() + (folder / "ca.pem").read_bytes(), (folder / "own.key").read_bytes()


def main():
    command = shutil.which("testssl") or shutil.which("testssl.sh")
    if not command:
        print("SKIPPED: testssl.sh is not installed (tests/setup/packages.sh full)")
        return 3
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        certificate, key = certificates(folder)
        with veche.Veche(CONFIG, {"own.pem": certificate, "own.key": key, "www/index.html": b"<p>hello"}) as server:
            report = folder / "report.json"
            arguments = ["--quiet", "--color", "0", "--warnings", "batch", "--ip", "127.0.0.1", "--nodns", "none"]
            arguments += ["--jsonfile", str(report), f"https://localhost:{server.port}/"]
            done = subprocess.run([command, *arguments], capture_output=True, text=True, cwd=folder, timeout=1100)
            panicked = server.panicked() and server.log_tail()
        findings = json.loads(report.read_text()) if report.exists() else []
    counts = collections.Counter(finding["severity"] for finding in findings)
    bad = [finding for finding in findings if finding["severity"] in ABOVE_LOW and finding["id"] not in OF_THE_TEST]
    for finding in bad:
        print(f"FAILED {finding['id']}: {finding['severity']}: {finding['finding']}")
    # The ids of the checks that have run. An aborted run has no findings either, so some checks must be among them.
    looked = {finding["id"] for finding in findings}
    missing = {"TLS1", "TLS1_3", "cipher_order", "heartbleed", "ROBOT", "secure_client_renego", "BREACH"} - looked
    if missing or panicked:
        print(f"FAILED checks that did not run: {sorted(missing)}\n{done.stdout[-2000:]}{done.stderr[-1000:]}{panicked or ''}")
    failed = len(bad) + bool(missing or panicked)
    low = [f"{finding['id']} ({finding['finding'][:60]})" for finding in findings if finding["severity"] == "LOW"]
    print(f"testssl.sh: {dict(counts)}; LOW: {', '.join(low) or 'none'}")
    print(f"testssl.sh: {len(findings) - failed} passed, {failed} failed in {time.monotonic() - started:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
