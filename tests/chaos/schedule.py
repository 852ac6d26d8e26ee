"""What happens to whom and when: a pure function of the seed, so that a run can be replayed.

Each role has one tormentor, which never has two victims at a time: where a role has two members, one of them
is always left alone. Times are pauses between events; a tormentor also waits until the last victim serves again,
so a slower machine sees the same events in the same order, later."""
import collections
import random

# seconds: how long it lasts, or None. `shape` is what the proxy of a worker is told (proxy.py). `faults` arm the next incarnation of a
# killed or drained worker.
Event = collections.namedtuple("Event", "pause kind victim seconds shape faults")

# (kind, weight, shortest, longest): what a worker meets.
WORKER_KINDS = (
    ("kill", 72, None, None),
    ("stall", 14, 0.2, 2.0),
    ("stall", 9, 3.5, 6.0),   # longer than the silence after which a worker counts as dead
    ("cut", 12, 0.5, 4.0),    # nothing passes in either direction
    ("half", 5, 1.0, 4.0),    # what it sends is lost, what it should hear arrives, or the other way round
    ("slow", 4, 2.0, 5.0),    # a fraction of the bandwidth
    ("shape", 9, 1.0, 5.0),   # its pages come late, slowly, or not at all, while its words come as ever
    ("drain", 6, None, None),
)
ROUTER_KINDS = (("kill", 3, None, None), ("stall", 2, 0.2, 2.5))

# Armed in some incarnations; probabilities are per chance to fire. Messages are never reordered here: a pair of nng sockets keeps their
# order, so that exists in the simulation only.
FAULTS = {
    "prefill": ("handoff.drop:0.03", "handoff.corrupt:0.03", "handoff.delay:0.1:80", "worker.stall:0.02:300", "pool.exhaust:0.05",
                "message.repeat:0.1", "clock.jump:1:90000"),
    "decode": ("worker.stall:0.01:300", "pool.exhaust:0.05", "message.repeat:0.1", "clock.jump:1:-90000"),
    "router": ("message.repeat:0.1", "clock.jump:1:90000"),
}

# Not fault points, but what else a life may begin with: its log goes to a full disk; its data plane goes through a proxy.
FULL_LOG, PROXIED = "log.full", "proxied"


def shape_of(random_):
    """Pages that are late, that come at a fraction of the speed (a page may take longer than the patience for it), or a half-open connection."""
    return random_.choice((f"delay {random_.uniform(0.02, 0.5):.3f}", f"rate {int(10 ** random_.uniform(4.7, 6.7))}",
                           "half forward", "half back"))


def events(seed, role, members):
    """The endless sequence of what the members of a role meet."""
    random_ = random.Random(f"{seed} {role}")
    kinds = ROUTER_KINDS if role == "router" else WORKER_KINDS
    while True:
        kind, _, low, high = random_.choices(kinds, [k[1] for k in kinds])[0]
        pause = random_.uniform(8, 16) if role == "router" else random_.uniform(1.5, 5.5)
        armed = tuple(f for f in FAULTS[role] if random_.random() < 0.15)
        more = ((FULL_LOG, 0.05), (PROXIED, 0.0 if role == "router" else 0.5))
        armed += tuple(name for name, chance in more if random_.random() < chance)
        yield Event(pause, kind, random_.randrange(members), None if low is None else random_.uniform(low, high),
                    shape_of(random_) if kind == "shape" else None, armed)
