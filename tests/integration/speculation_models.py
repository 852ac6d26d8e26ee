#!/usr/bin/env python3
# tags: heavy slow
# limit: 14400
"""speculation.py with 200 requests on three models, and on a large model with a small one that guesses for it: an hour or two. A model whose file is not
there (deploy/model/fetch.sh) is passed over by name."""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "penstock", "models")
RUNS = (("SmolLM2-135M-Instruct.Q4_1.gguf", None, 200), ("gemma-3-270m.Q4_K_M.gguf", None, 200), ("Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf", None, 200),
        ("Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf", "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf", 200))


def main():
    done = 0
    for model, draft, requests in RUNS:
        files = [os.path.join(FOLDER, name) for name in (model, draft) if name]
        missing = [file for file in files if not os.path.exists(file)]
        print(f"{model} with {requests} requests" + (f": passed over, {missing[0]} is not there" if missing else ""), flush=True)
        if missing:
            continue
        command = [sys.executable, os.path.join(HERE, "speculation.py"), "--requests", str(requests)] + (["--draft", files[1]] if draft else [])
        if subprocess.run(command, env=dict(os.environ, PENSTOCK_MODEL=files[0]), check=False).returncode != 0:
            return 1
        done += 1
    return 0 if done else 77


if __name__ == "__main__":
    sys.exit(main())
