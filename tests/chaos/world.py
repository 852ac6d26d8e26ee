"""The processes of a cluster, each worker in a network namespace of its own where that is possible, and what
can be done to them."""
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "harness"))
from cluster import BUILD, SLOW, Cluster, Failure, Process, free_port  # noqa: E402
from schedule import FULL_LOG, PROXIED  # noqa: E402

NETWORK = "10.211.5."
PROXY_PORT, PROXY_MARK = "1111", "7"  # the port is below those that UCX and the harness take


def command(*words, check=True):
    return subprocess.run(words, check=check, capture_output=True, text=True)


class Networks:
    """A bridge in the namespace that this program runs in, and one namespace with a proxy behind it for each worker."""

    def __init__(self, tag, count):
        self.tag, self.names = tag, [f"{tag}w{i}" for i in range(count)]
        command("ip", "link", "set", "lo", "up")
        command("ip", "link", "add", "bridge", "type", "bridge")
        command("ip", "addr", "add", NETWORK + "1/24", "dev", "bridge")
        command("ip", "link", "set", "bridge", "up")
        for i, name in enumerate(self.names):
            command("ip", "netns", "add", name)
            command("ip", "link", "add", f"port{i}", "type", "veth", "peer", "name", "eth0", "netns", name)
            command("ip", "link", "set", f"port{i}", "master", "bridge", "up")
            command("ip", "-n", name, "link", "set", "lo", "up")
            command("ip", "-n", name, "addr", "add", f"{NETWORK}{10 + i}/24", "dev", "eth0")
            command("ip", "-n", name, "link", "set", "eth0", "up")
        self.led = [False] * count
        self.proxies = [subprocess.Popen([*self.prefix(i), sys.executable, os.path.join(HERE, "proxy.py"), PROXY_PORT, PROXY_MARK],
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True) for i in range(count)]
        for i in range(count):
            self.hear(i)

    def hear(self, index):
        if not self.proxies[index].stdout.readline():
            raise Failure(f"the proxy of {self.names[index]} ended")

    def shape(self, index, words):
        print(words, file=self.proxies[index].stdin, flush=True)
        self.hear(index)

    def lead(self, index, through):
        """What a worker says to other workers goes through its proxy, or does not; holds for connections made from now on."""
        if through == self.led[index]:
            return
        self.led[index] = through
        for words in (("PREROUTING", "-i", "eth0", "!", "-s", NETWORK + "1"),
                      ("OUTPUT", "-o", "eth0", "!", "-d", NETWORK + "1", "-m", "mark", "!", "--mark", PROXY_MARK)):
            command(*self.prefix(index), "iptables", "-w", "-t", "nat", "-A" if through else "-D", *words, "-p", "tcp", "-j", "REDIRECT",
                    "--to-ports", PROXY_PORT)

    def address(self, index):
        return f"{NETWORK}{10 + index}"

    def prefix(self, index):
        return ("ip", "netns", "exec", self.names[index])

    def drop(self, index, directions, begin):
        for chain in directions:
            command(*self.prefix(index), "iptables", "-w", "-I" if begin else "-D", chain, "-p", "tcp", "-j", "DROP", check=begin)

    def slow(self, index, begin):
        words = ("add", "dev", "eth0", "root", "tbf", "rate", "40mbit", "burst", "64kbit", "latency", "200ms")
        command(*self.prefix(index), "tc", "qdisc", *(words if begin else ("del", "dev", "eth0", "root")), check=False)

    def close(self):
        for proxy in self.proxies:
            proxy.kill()
            proxy.wait()
        for name in self.names:
            command("ip", "netns", "del", name, check=False)


class Member:
    """One place of the cluster: its process is replaced, its name and address stay."""

    def __init__(self, role, index, name, address):
        self.role, self.index, self.name, self.address = role, index, name, address
        self.process, self.life, self.down = None, 0, False


class World(Cluster):
    """Several routers and workers. Inherits how processes are started and asked; see harness/cluster.py."""

    def __init__(self, prefill, decode, routers, networks, model):
        self.networks = networks
        self.counts = {"kills": 0, "stalls": 0, "cuts": 0, "slowed": 0, "shaped": 0, "drains": 0}
        self.lock = threading.Lock()
        self.lives = 0
        host = NETWORK + "1" if networks else "127.0.0.1"
        self.routers = [Member("router", i, f"router-{i}", (host, free_port(host))) for i in range(routers)]
        self.control = [free_port(host) for _ in range(routers)]
        places = [("prefill", i) for i in range(prefill)] + [("decode", i) for i in range(decode)]
        self.members = [Member(role, i, f"{role}-{number}", networks.address(i) if networks else "127.0.0.1")
                        for i, (role, number) in enumerate(places)]
        super().__init__(0, 0, wait=False, model=model, hosts={"router": host})
        self.router.kill()  # the harness starts one of its own; this world names and replaces its routers itself
        self.router.popen.wait()
        for i, member in enumerate(self.routers + self.members):
            self.begin(member, (PROXIED,) if i % 2 else ())

    # ---- beginning ---------------------------------------------------------------------------

    def begin(self, member, faults=()):
        """A new process in a member's place, with `faults` armed."""
        points = [f for f in faults if f not in (FULL_LOG, PROXIED)]
        settings = self.router_settings(member) if member.role == "router" else self.worker_settings(member)
        if points:
            settings.append("faults=" + ",".join(points))
        with self.lock:
            self.lives += 1
            name = f"{member.name}.{self.lives}"
        words = [os.path.join(BUILD, "bin", "penstock-" + member.role)] + self.flags(settings)
        prefix = ()
        if self.networks and member.role != "router":
            prefix = self.networks.prefix(member.index)
            self.networks.lead(member.index, PROXIED in faults)
        if FULL_LOG in faults:
            words = ["sh", "-c", 'exec "$@" >/dev/full 2>&1', "sh"] + words
        process = Process(name, words, self.folder, prefix=prefix)
        process.faults = faults
        with self.lock:
            member.process = process
            member.life += 1
            member.down = member.role == "router"  # until it is ready: nobody sends it anything before
            self.processes.append(process)

    def router_settings(self, member):
        host, port = member.address
        return [f"http.listen={host}:{port}", f"control.listen=tcp://{host}:{self.control[member.index]}",
                f"router.model={self.model}", f"router.retry_budget={60 * SLOW:g}s",
                # Whoever dies here was killed from outside: no request is to blame.
                "router.poison_deaths=100", "policy.local_prefill_tokens=16"]

    def worker_settings(self, member):
        urls = ",".join(f"tcp://{r.address[0]}:{c}" for r, c in zip(self.routers, self.control))
        return [f"engine.model={self.model}", "engine.kv_bytes=192MiB", f"worker.name={member.name}", f"worker.routers={urls}",
                f"worker.host={member.address}", f"fabric.host={member.address}", "fabric.checksums=true", "engine.threads=1",
                "worker.cores=all", f"worker.step_deadline={30 * SLOW:g}s", f"queue.waiting_time={30 * SLOW:g}s"]

    # ---- asking ------------------------------------------------------------------------------

    def router_for(self, random_):
        """A router that is up, of which there is always one."""
        while True:
            up = [r for r in self.routers if not r.down]
            if up:
                return random_.choice(up)
            time.sleep(0.05)

    @staticmethod
    def get(router, path):
        """Status and body. Not Cluster.request, which has one address for all threads."""
        connection = http.client.HTTPConnection(*router.address, timeout=5 * SLOW)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def seen_by(self, router):
        status, data = self.get(router, "/cluster")
        if status != 200:
            raise Failure(f"/cluster of {router.name}: {status}")
        return json.loads(data)

    def serves(self, member):
        """Whether every router that is up counts this member's present life as usable."""
        for router in self.routers:
            if router.down or member.role == "router":
                continue
            rows = [w for w in self.seen_by(router)["workers"] if w["name"] == member.name]
            if len(rows) != 1 or rows[0].get("state", "alive") not in ("alive", "ready"):
                return False
        return member.role != "router" or self.ready(member)

    def ready(self, router):
        """As a load balancer asks; and it must know most workers, so that those left alone are among them."""
        rows = self.seen_by(router)["workers"]
        usable = [w for w in rows if w.get("state", "alive") in ("alive", "ready")]
        return len(usable) >= len(self.members) - 2 and self.get(router, "/ready")[0] == 200

    def wait_until_serving(self, member, seconds=60):
        end, last = time.monotonic() + seconds * SLOW, None
        while time.monotonic() < end:
            try:
                if self.serves(member):
                    member.down = False
                    return
                last = "not usable"
            except (OSError, ValueError, http.client.HTTPException, Failure) as e:
                last = e
            if not member.process.alive():
                raise Failure(member.process.last_words())
            time.sleep(0.05)
        raise Failure(f"{member.name} does not serve again within {seconds} s: {last}")

    # ---- what happens to a member ------------------------------------------------------------

    def suffer(self, member, event):
        """One event, from its beginning until its direct effect is over."""
        if event.kind == "kill":
            self.replace(member, event.faults)
        elif event.kind == "stall":
            self.count("stalls")
            member.process.kill(signal.SIGSTOP)
            time.sleep(event.seconds)
            member.process.kill(signal.SIGCONT)
        elif event.kind == "drain":
            self.count("drains")
            code = self.end(member, signal.SIGTERM, 60)
            if code != 0:
                raise Failure(f"{member.process.name} drained with status {code}")
            self.begin(member, event.faults)
        elif self.networks and event.kind == "shape":
            if not self.networks.led[member.index]:
                self.replace(member, event.faults + (PROXIED,))
                self.wait_until_serving(member)
                time.sleep(2)  # so that something is on its way
            self.count("shaped")
            self.networks.shape(member.index, event.shape)
            time.sleep(event.seconds)
            self.networks.shape(member.index, "pass")
        elif self.networks and event.kind == "slow":
            self.count("slowed")
            self.networks.slow(member.index, True)
            time.sleep(event.seconds)
            self.networks.slow(member.index, False)
        elif self.networks:
            self.count("cuts")
            chains = ("INPUT", "OUTPUT") if event.kind == "cut" else (("INPUT",), ("OUTPUT",))[int(event.seconds * 1000) % 2]
            self.networks.drop(member.index, chains, True)
            time.sleep(event.seconds)
            self.networks.drop(member.index, chains, False)

    def replace(self, member, faults):
        self.count("kills")
        self.end(member, signal.SIGKILL)
        time.sleep(0.2)
        self.begin(member, faults)

    def count(self, what):
        with self.lock:
            self.counts[what] += 1

    def end(self, member, number, seconds=10):
        process = member.process
        if member.role == "router":
            member.down = True
        process.expected_death = True
        process.kill(number)
        try:
            return process.popen.wait(seconds * SLOW)
        except subprocess.TimeoutExpired as e:
            raise Failure(f"{process.name} does not end after signal {number}") from e

    # ---- at the end --------------------------------------------------------------------------

    def leaks(self, seconds=30):
        """Pages and requests that are still held although nobody asks any more; [] where all is free."""
        end, last = time.monotonic() + seconds * SLOW, ["not asked"]
        while time.monotonic() < end and last:
            try:
                last = [f"{router.name}: {json.dumps(row)}" for router in self.routers for row in self.busy(self.seen_by(router))]
            except (OSError, ValueError, http.client.HTTPException, Failure) as e:
                last = [str(e)]
            time.sleep(0.2)
        return last

    @staticmethod
    def busy(state):
        rows = [w for w in state["workers"] if w["pages_free"] != w["pages"] or w["pages_held"] or w["sequences_running"] or
                w["sequences_waiting"] or w["pages_quarantined"]]
        counts = {key: state[key] for key in ("requests_running", "requests_waiting") if state[key]}
        return rows + ([counts] if counts else [])
