#!/usr/bin/env python3
# tags: plain slow
# limit: 300
"""Plants bugs in the product, one at a time, and shows that the simulation notices each.

    tests/simulation/mutations.py [--list] [NAME ...]

A mutation replaces a text in a copy of one source file; the copy is compiled as the build compiles the
file, and linked into a copy of the simulation before the libraries, so that the product's own object is not
taken. It must be noticed by an invariant within SEEDS histories, in one in which the product as it is breaks
none. A text that is no longer in its file fails with its name: write that mutation anew, so that it plants
the same bug.
"""
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("PENSTOCK_BUILD_DIR", os.path.join(ROOT, "build"))
PROGRAM = "penstock-simulation"
SEEDS = 1500

# Name, what is wrong with it, file, text, text in its place.
MUTATIONS = [
    ("quarantine", "pages of a failed transfer return although a peer may still touch them",
     "common/handoff/table.c",
     "    if (t->held == 0) {\n        actions", "    {\n        t->held = 0;\n        actions"),
    ("acknowledgement", "a prefill worker lets its pages go when they are sent, not when they are received",
     "prefill_worker/prefill.c", "station_hold(s, j, pages + j->next_page, count);", ""),
    ("hold", "a decode worker does not hold the pages of its seat",
     "decode_worker/decode.c", "    station_hold(s, j, pages + first, count - first);\n", ""),
    ("early-sequence", "a seat becomes a sequence before its last pages are in",
     "common/handoff/receive.c", "if (s->t.state == SEAT_RECORDED && s->t.held == 0 && s->stored == s->needed - s->first_page)",
     "if (s->t.state == SEAT_RECORDED)"),
    ("cancelled-pages", "pages return with the cancel, while a peer may still write them",
     "common/worker/station.c", "    if (!j->transfer) {\n        station_release(s, j);", "    station_release(s, j);\n    if (!j->transfer) {"),
    ("credit", "the credits of a prefill worker do not return when a request is taken back",
     "router/dispatcher.c", "    dispatcher_release(d, &x->decode);\n    dispatcher_release(d, &x->prefill);\n}", "    dispatcher_release(d, &x->decode);\n}"),
    ("older-attempt", "tokens of an older attempt are accepted",
     "router/dispatcher_events.c", "else if (x->attempt != attempt && !leaving)", "else if (false && !leaving)"),
    ("repeat", "a repeated token is delivered again",
     "router/stream.c", "size_t i = known - update->first_index;", "size_t i = 0;"),
    ("forgotten", "a request is forgotten when its decode worker dies",
     "router/dispatcher_lost.c", "bool decode = x->decode.serial == w->serial, prefill", "bool decode = false, prefill"),
    ("resume", "a further attempt leaves out the first token of the answer",
     "router/dispatcher.c", "for (size_t i = 0; i < x->stream.received.count; i++)",
     "for (size_t i = 1; i < x->stream.received.count; i++)"),
    ("cancel", "a worker does not hear cancels",
     "common/worker/station.c", "if (j != NULL && j->state != JOB_ENDING && j->router == event->router)", "if (false)"),
    ("second-copy", "a ticket that comes twice is computed twice",
     "common/worker/job.c", "            return true;\n    }\n    t->came[", "            continue;\n    }\n    t->came["),
    ("tick", "what fails within a tick has failed for ever",
     "router/dispatcher_events.c", "now >= x->failing_since_us + (uint64_t)settings->retry_budget_us",
     "now - x->failing_since_us >= (uint64_t)settings->retry_budget_us"),
    ("silence", "a silent worker is never lost",
     "router/registry.c", "if (silent > (uint64_t)r->settings->dead_after_us)", "if (false)"),
]


def command_of(source):
    """The compiler's words for a source file, without its names of source and object."""
    with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as file:
        for entry in json.load(file):
            if os.path.samefile(entry["file"], source):
                words = shlex.split(entry["command"])
                cut = words.index("-o")
                return [word for word in words[:cut] + words[cut + 2:] if word not in ("-c", entry["file"])]
    sys.exit("%s is not compiled in %s" % (source, BUILD))


def link_command():
    listing = subprocess.run(["ninja", "-C", BUILD, "-t", "commands", PROGRAM], check=True, text=True,
                             capture_output=True).stdout.splitlines()
    line = next(line for line in reversed(listing) if "-o simulation/" + PROGRAM in line)
    return shlex.split(re.sub(r"^: && | && :$", "", line))


def plant(mutation, folder):
    """The simulation with the bug in it, or None and what is wrong with the mutation."""
    name, _, path, text, other = mutation
    source = os.path.join(ROOT, path)
    with open(source, encoding="utf-8") as file:
        content = file.read()
    if content.count(text) < 1:
        return None, "%s has no such text any more: %s" % (path, text.strip())
    changed = os.path.join(folder, name + ".c")
    with open(changed, "w", encoding="utf-8") as file:
        file.write(content.replace(text, other, 1))
    thing = os.path.join(folder, name + ".o")
    words = command_of(source) + ["-Wno-error", "-Wno-unused", "-w", "-c", changed, "-o", thing]
    done = subprocess.run(words, cwd=BUILD, check=False, text=True, capture_output=True)
    if done.returncode != 0:
        return None, done.stderr
    program = os.path.join(folder, name)
    words = link_command()
    place = words.index("-o")
    words[place + 1] = program
    words.insert(place, thing)
    done = subprocess.run(words, cwd=BUILD, check=False, text=True, capture_output=True)
    return (program, "") if done.returncode == 0 else (None, done.stderr)


def notice(mutation, folder):
    """True where the simulation notices it."""
    program, fault = plant(mutation, folder)
    if not program:
        print("%-16s cannot be planted: %s" % (mutation[0], fault))
        return False
    done = subprocess.run([program, "--seeds", str(SEEDS), "--until-bad"], check=False, text=True, errors="replace",
                          capture_output=True)
    found = re.search(r"seed (\d+): (.*)", done.stderr)
    seen = done.returncode != 0 and found is not None
    os.unlink(program)
    if seen:  # else it is not the planted bug that is seen
        healthy = [os.path.join(BUILD, "simulation", PROGRAM), "--seed", found.group(1)]
        seen = subprocess.run(healthy, check=False, capture_output=True).returncode == 0
    print("%-16s %s: %s" % (mutation[0], "noticed" if seen else "NOT NOTICED", mutation[1]))
    if seen:
        print("%16s seed %s: %s" % ("", found.group(1), re.sub(r"\s+", " ", found.group(2))[:150]))
    sys.stdout.flush()
    return seen


def main():
    chosen = [mutation for mutation in MUTATIONS if not sys.argv[1:] or mutation[0] in sys.argv[1:]]
    if "--list" in sys.argv:
        for name, what, path, _, _ in MUTATIONS:
            print("%-16s %s (%s)" % (name, what, path))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        missed = [mutation[0] for mutation in chosen if not notice(mutation, folder)]
    print("%d bugs planted, %d noticed" % (len(chosen), len(chosen) - len(missed)))
    return 1 if missed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
