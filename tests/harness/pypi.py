"""Python packages that a test or a benchmark needs from PyPI, in a virtual environment of their own under the
cache folder, made at first use."""
import os
import subprocess
import sys

CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "penstock")


def run_with(name, requirements, unable):
    """Go on inside the environment `name` with the packages `requirements` ("openai==1.99.9"): the script is run
    again there with the same arguments. `unable` is called with a sentence where that is impossible."""
    folder = os.path.join(CACHE, "venv-" + name)
    if os.path.realpath(sys.prefix) == os.path.realpath(folder):
        return
    python, done = os.path.join(folder, "bin", "python3"), os.path.join(folder, "installed")
    wanted = " ".join(requirements)
    if not (os.path.exists(done) and open(done, encoding="utf-8").read() == wanted):
        os.makedirs(CACHE, exist_ok=True)
        for command in ([sys.executable, "-m", "venv", folder], [python, "-m", "pip", "install", "--quiet", *requirements]):
            made = subprocess.run(command, capture_output=True, text=True, check=False)
            if made.returncode:
                return unable(f"cannot install {wanted}: {(made.stderr or made.stdout).strip()[-200:]}")
        with open(done, "w", encoding="utf-8") as mark:
            mark.write(wanted)
    os.execv(python, [python, os.path.abspath(sys.argv[0]), *sys.argv[1:]])
