"""A candidate in Python: does what crates/bench/src/peers/protocol.rs describes, with threads."""

import os
import queue
import sys
import threading
import time

GAP = 500_000_000


def now():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


_mouth = threading.Lock()


def say(word, *numbers):
    with _mouth:
        print(word, *(int(number) for number in numbers), flush=True)


def serve(peer):
    """`peer` has win(name), hold(name), release(own), holds(own), lease_until(own) and another()."""
    desk = {"own": None}
    owned = queue.Queue()
    asking = queue.Queue()
    held = []

    def campaign(candidate, name):
        def run():
            own = candidate.win(name)
            owned_at = now()
            desk["own"] = own
            owned.put((candidate, own))
            say("own", owned_at)

        threading.Thread(target=run, daemon=True).start()

    def holds():
        own = desk["own"]
        return own is not None and bool(peer.holds(own))

    threading.Thread(target=answer_checks, args=(asking, holds), daemon=True).start()
    say("ready")
    for line in sys.stdin:
        words = line.split()
        if words[0] == "campaign":
            campaign(peer, words[1])
        elif words[0] == "release":
            candidate, own = owned.get()
            released_at = now()
            candidate.release(own)
            desk["own"] = None
            say("released", released_at)
        elif words[0] == "lease":
            own = desk["own"]
            say("lease", peer.lease_until(own) if own is not None else 0)
        elif words[0] in ("check", "watch", "last", "cost"):
            asking.put(words[0])
        elif words[0] == "hold":
            for number in range(len(held), int(words[1])):
                held.append(peer.hold(f"hold.{os.getpid()}.{number}"))
            say("held", len(held))
        elif words[0] == "wait":
            count, span = int(words[1]), int(words[2])
            for _ in range(count):
                campaign(peer.another(), words[3])
                time.sleep(span / count / 1000)
            say("queued", count)
    # Who started us is gone, and threads may wait for ever.
    os._exit(0)


def answer_checks(asking, holds):
    watching, yes_at, newest, checked_at = False, 0, False, now()
    while True:
        try:
            word = asking.get(timeout=0.001 if watching else None)
        except queue.Empty:
            began_at = now()
            newest = holds()
            if newest:
                yes_at = began_at
            if began_at - checked_at > GAP:
                say("resumed", newest)
            checked_at = began_at
            continue
        if word == "cost":
            say("cost", cost(holds))
        elif word == "check":
            say("check", holds())
        elif word == "last":
            say("last", yes_at, newest)
        else:
            watching, checked_at = True, now()


def cost(holds):
    """Picoseconds of one check: the median of a few spans with as many as fit into them."""
    costs = []
    for _ in range(9):
        began, checks, spent = time.perf_counter_ns(), 0, 0
        while spent < 50_000_000:
            for _ in range(20):
                holds()
            checks += 20
            spent = time.perf_counter_ns() - began
        costs.append(spent * 1000 // checks)
    return sorted(costs)[len(costs) // 2]
