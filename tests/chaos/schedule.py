"""What happens to whom and when: a pure function of the seed, so that a run can be replayed.

Each role has one tormentor, which never has two victims at a time: where a role has two members, one of them
is always left alone. Times are pauses between events; a tormentor also waits until the last victim serves again,
so a slower machine sees the same events in the same order, later."""
import collections
import random

# seconds: how long it lasts, or None. `faults` arm the next incarnation of a killed or drained worker.
Event = collections.namedtuple("Event", "pause kind victim seconds faults")

# (kind, weight, shortest, longest): what a worker meets.
WORKER_KINDS = (
    ("kill", 62, None, None),
    ("stall", 14, 0.2, 2.0),
    ("stall", 9, 3.5, 6.0),   # longer than the silence after which a worker counts as dead
    ("cut", 9, 0.5, 5.0),     # nothing passes in either direction
    ("half", 4, 1.0, 5.0),    # what it sends is lost, what it should hear arrives, or the other way round
    ("slow", 5, 2.0, 5.0),    # a fraction of the bandwidth
    ("drain", 6, None, None),
)
ROUTER_KINDS = (("kill", 3, None, None), ("stall", 2, 0.2, 2.5))

# Armed in some incarnations; probabilities are per chance to fire.
FAULTS = {
    "prefill": ("handoff.drop:0.03", "handoff.corrupt:0.03", "handoff.delay:0.1:80", "worker.stall:0.02:300", "pool.exhaust:0.05",
                "message.repeat:0.1", "clock.jump:1:90000"),
    "decode": ("worker.stall:0.01:300", "pool.exhaust:0.05", "message.repeat:0.1", "clock.jump:1:-90000"),
    "router": ("message.repeat:0.1", "clock.jump:1:90000"),
}


def events(seed, role, members):
    """The endless sequence of what the members of a role meet."""
    random_ = random.Random(f"{seed} {role}")
    kinds = ROUTER_KINDS if role == "router" else WORKER_KINDS
    while True:
        kind, _, low, high = random_.choices(kinds, [k[1] for k in kinds])[0]
        pause = random_.uniform(8, 16) if role == "router" else random_.uniform(2.0, 7.0)
        armed = tuple(f for f in FAULTS[role] if random_.random() < 0.15)
        if random_.random() < 0.05:
            armed += ("log.full",)  # not a fault point: its log goes to a full disk
        yield Event(pause, kind, random_.randrange(members), None if low is None else random_.uniform(low, high), armed)
