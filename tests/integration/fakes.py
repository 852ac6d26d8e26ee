"""The real router with workers that have no engine (fake/fake_worker.c): quick, exact, and free to misbehave."""
import contextlib
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from cluster import BUILD, Cluster, Process  # noqa: E402
from streams import metric  # noqa: E402


class FakeCluster(Cluster):
    def __init__(self, router=(), **more):
        super().__init__(0, 0, router=router, wait=False, **more)
        self.until("the router answers", lambda: self.request("GET", "/health")[0] == 200)

    def fake(self, role, name=None, wait=True, **options):
        """Start one; options as fake-worker has them, with _ for -."""
        self.counter += 1
        name = name or f"{role}-{self.counter}"
        command = [os.path.join(BUILD, "harness", "fake-worker"), "--router", f"tcp://{self.router_host}:{self.control_port}",
                   "--model", self.model, "--role", role, "--name", name]
        for key, value in options.items():
            command += ["--" + key.replace("_", "-")] + ([] if value is True else [str(value)])
        process = Process(f"{name}-{self.counter}", command, self.folder)
        process.role, process.worker = role, name
        self.processes.append(process)
        self.workers.append(process)
        if wait:
            self.until(f"{name} is alive", lambda: [w for w in self.state()["workers"]
                                                     if w["name"] == name and w["state"] == "alive"])
        return process

    def worker(self, name):
        return [w for w in self.state()["workers"] if w["name"] == name][0]

    def metric(self, name):
        """The sum of the series that are so called and have these labels, and perhaps more of them; 0 where there is none."""
        family, _, labels = name.rstrip("}").partition("{")
        return metric(self, family, **dict(re.findall(r'(\w+)="([^"]*)"', labels)))


@contextlib.contextmanager
def templated(source):
    """One of each role behind a router with this chat template. Their answers repeat the prompt, so that the template says what the model says."""
    with tempfile.NamedTemporaryFile("w", suffix=".jinja", encoding="utf-8") as file:
        file.write(source)
        file.flush()
        with FakeCluster(router=[f"router.chat_template={file.name}"]) as cluster:
            cluster.fake("prefill")
            cluster.fake("decode")
            yield cluster
            cluster.check_idle()


# Shows the last message and opens a block of thought, where it is told to.
THINKER = "{{ messages[-1].content }}{% for m in messages %}{{ m.reasoning_content }}{% endfor %}{{ '<think>' if enable_thinking }}{# </think> #}"
