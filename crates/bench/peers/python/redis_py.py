"""redis-py's Lock, with a thread that reacquires every third of the ttl what is held. Its check is Lock.owned()."""

import sys
import threading
import time

import redis

from candidate import now, serve


class Peer:
    def __init__(self, url, ttl):
        self.url, self.ttl = url, ttl
        self.client = redis.Redis.from_url(url)
        self.client.ping()
        self.held = {}
        threading.Thread(target=self.renew, daemon=True).start()

    def win(self, name):
        lock = self.client.lock(name, timeout=self.ttl, thread_local=False)
        lock.acquire()
        self.held[lock] = now()
        return lock

    hold = win

    def renew(self):
        """One after the other, as one program would for all that it holds."""
        while True:
            time.sleep(self.ttl / 3)
            for lock in list(self.held):
                try:
                    lock.reacquire()
                    if lock in self.held:
                        self.held[lock] = now()
                except redis.exceptions.RedisError as error:
                    print(f"cannot renew: {error}", file=sys.stderr)
                    self.held.pop(lock, None)

    def release(self, lock):
        self.held.pop(lock, None)
        lock.release()

    def holds(self, lock):
        try:
            return lock.owned()
        except redis.exceptions.RedisError:
            return False

    def lease_until(self, lock):
        return self.held[lock] + self.ttl * 1e9

    def another(self):
        return Peer(self.url, self.ttl)


serve(Peer(sys.argv[1], int(sys.argv[2]) / 1000))
