#!/usr/bin/env python3
# tags: integration router worker
# limit: 120
"""The planes between the processes: a pair of workers meets by a token of its router, and a whole cluster speaks TLS."""
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from cluster import BUILD, SLOW, Cluster, check, free_port, main, skip  # noqa: E402

ROLES = {"router": "routers", "prefill": "workers", "decode": "workers"}


def sh(folder, *commands):
    for command in commands:
        subprocess.run(command, cwd=folder, shell=True, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def authorities(folder):
    """One authority for routers, one for workers, and a certificate of each role."""
    new = "openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
    for ca in ("routers", "workers"):
        sh(folder, f"{new} -x509 -keyout {ca}.key -out {ca}.pem -subj /CN={ca} -days 30")
    for role, ca in ROLES.items():
        sh(folder, f"{new} -keyout {role}.key -out {role}.csr -subj /CN={role}",
           f"echo subjectAltName=DNS:penstock-{role} >names",
           f"openssl x509 -req -in {role}.csr -CA {ca}.pem -CAkey {ca}.key -CAcreateserial -days 30 -extfile names -out {role}.crt",
           f"cat {role}.crt {role}.key >{role}.pem")


def security(folder, role, certificate=None):
    other = "workers" if role == "router" else "routers"
    return [f"security.certificate={folder}/{certificate or role}.pem", f"security.peers_ca={folder}/{other}.pem"]


def ask_through_both(cluster):
    cluster.complete("one two three four five six seven eight nine ten " * 12, max_tokens=4, temperature=0)
    for worker in cluster.workers:
        check(" ready transport " in worker.text() and "token shown" in worker.text(), f"{worker.name} met its pair by a token")


def a_pair_meets_by_a_token(model):
    with Cluster(model=model, router=["policy.local_prefill_tokens=0"]) as cluster:
        ask_through_both(cluster)


def a_cluster_speaks_tls(folder, model):
    url = f"tls+tcp://127.0.0.1:{free_port()}"
    of_worker = {role: security(folder, role) + [f"worker.routers={url}"] for role in ("prefill", "decode")}
    with Cluster(model=model, router=security(folder, "router") + [f"control.listen={url}", "policy.local_prefill_tokens=0"],
                 prefill_set=of_worker["prefill"], decode_set=of_worker["decode"]) as cluster:
        ask_through_both(cluster)
        # It registers, but the router that dials it asks for another name.
        wrong = cluster.start_worker("decode", security(folder, "decode", "prefill"))
        cluster.until("the router met it", lambda: f"worker joins name {wrong.name} " in cluster.router.text())
        cluster.until("the router gave it up", lambda: f"worker lost name {wrong.name} " in cluster.router.text())
        check(f"worker is alive name {wrong.name}" not in cluster.router.text(), "it never was a worker")
        wrong.stop()


def what_does_not_fit_is_refused_at_the_start(folder, model):
    for settings, words in ((["control.listen=tls+tcp://127.0.0.1:0"], "control.listen has"),
                            (security(folder, "router") + ["control.listen=tcp://127.0.0.1:0"], "control.listen has"),
                            ([f"security.certificate={folder}/router.pem"], "security.peers_ca is empty")):
        command = [os.path.join(BUILD, "bin", "penstock-router"), "--set", f"router.model={model}",
                   "--set", "http.listen=127.0.0.1:0"] + [part for s in settings for part in ("--set", s)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60 * SLOW)
        check(done.returncode != 0 and words in done.stdout + done.stderr, f"{settings}: {done}")


def test():
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "tiny.gguf")
        subprocess.run([os.path.join(BUILD, "tools", "tiny-model"), model], check=True)
        a_pair_meets_by_a_token(model)
        if not shutil.which("openssl"):
            skip("no openssl command")
        authorities(folder)
        a_cluster_speaks_tls(folder, model)
        what_does_not_fit_is_refused_at_the_start(folder, model)


main(test)
