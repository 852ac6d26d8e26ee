#!/usr/bin/env python3
# tags: integration router
# limit: 120
"""Workers that an operator flips to the other role, under load. On the tiny model."""
import json
import os
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from operators import penstock  # noqa: E402
from cluster import BUILD, Cluster, check, main  # noqa: E402


def test():
    """A prefill worker becomes a decode worker and back, in the same process, while requests go on."""
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "tiny.gguf")
        subprocess.run([os.path.join(BUILD, "tools", "tiny-model"), model], check=True)
        with Cluster(prefill=2, decode=1, model=model, router=["policy.local_prefill_tokens=0"],
                     decode_set=["decode.recompute_failed_handoff=true"]) as cluster:
            request = {"model": cluster.model_name(), "prompt": "some words to begin with, and a few more " * 4, "max_tokens": 20,
                       "temperature": 0, "ignore_eos": True}
            truth = cluster.json("POST", "/v1/completions", request)["choices"]
            worker = cluster.workers[0]
            texts, stop = [], threading.Event()

            def load():
                while not stop.is_set():
                    code, _, data = cluster.request("POST", "/v1/completions", request)
                    texts.append(json.loads(data).get("choices", data) if code == 200 else data)
            client = threading.Thread(target=load)
            client.start()
            for role in ("decode", "prefill"):
                penstock(cluster, "flip", worker.name, role, "--wait")
                check(worker.alive(), "it is the same process")
                roles = [w["role"] for w in cluster.state()["workers"] if w["name"] == worker.name]
                check(roles == [role], f"{roles}")
                check(f"it is a {role} worker already" in penstock(cluster, "flip", worker.name, role, expect=1), "twice")
            stop.set()
            client.join()
            check(len(texts) > 3 and all(t == truth for t in texts), f"{texts[-1]} of {len(texts)} is not {truth}")
            decode = cluster.workers[2]
            penstock(cluster, "flip", decode.name, "prefill", "--wait")  # its own keys do not go with it; nobody decodes now
            penstock(cluster, "flip", decode.name, "decode", "--wait")
            cluster.check_idle()
        with Cluster(prefill=1, decode=1, model=model, prefill_set=["worker.decode_config=/nowhere.cfg"]) as cluster:
            text = penstock(cluster, "flip", cluster.workers[0].name, "decode", expect=1)
            check("the other role's program would not start" in text and "/nowhere.cfg" in text, text)
            check([w["state"] for w in cluster.state()["workers"]] == ["alive"] * 2, "it goes on")


main(test)
