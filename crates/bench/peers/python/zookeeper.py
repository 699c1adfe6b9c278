"""kazoo's Election on ZooKeeper: one session per candidate. Its check is whether the session is connected, by the state
that kazoo keeps, as its documents advise."""

import logging
import sys
import threading

from kazoo.client import KazooClient, KazooState

from candidate import serve

logging.basicConfig(stream=sys.stderr, level=logging.WARNING)


class Peer:
    def __init__(self, hosts, ttl):
        self.hosts, self.ttl = hosts, ttl
        self.client = KazooClient(hosts=hosts, timeout=ttl)
        # Whether nothing has happened to the session since.
        self.trusted = set()
        self.client.add_listener(self.on_state)
        self.client.start()

    def on_state(self, state):
        if state != KazooState.CONNECTED:
            self.trusted.clear()

    def win(self, name):
        """Election.run in a thread of its own, until it is told to return."""
        won, over = threading.Event(), threading.Event()
        own = (object(), over, threading.Event())
        election = self.client.Election("/" + name)

        def lead():
            self.trusted.add(own[0])
            won.set()
            over.wait()

        def run():
            election.run(lead)
            own[2].set()

        threading.Thread(target=run, daemon=True).start()
        won.wait()
        return own

    def hold(self, name):
        """The lock that an Election is made of: held ones need no thread."""
        lock = self.client.Lock("/" + name)
        lock.acquire()
        return lock

    def release(self, own):
        self.trusted.discard(own[0])
        own[1].set()
        own[2].wait()

    def holds(self, own):
        return own[0] in self.trusted

    def lease_until(self, own):
        return 0

    def another(self):
        return Peer(self.hosts, self.ttl)


serve(Peer(sys.argv[1], int(sys.argv[2]) / 1000))
