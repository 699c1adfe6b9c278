// The `redlock` package over ioredis, with a loop that extends every third of the ttl what is held. It has no check: a
// flag, which falls when an extension fails.
'use strict';

const Redis = require('ioredis');
const Redlock = require('redlock');
const { now, serve } = require('./candidate.cjs');

const [url, ttl] = [process.argv[2], Number(process.argv[3])];

class Peer {
  constructor() {
    this.redis = new Redis(url);
    // It says so on its standard error by itself what it meets; it connects again by itself.
    this.redis.on('error', (error) => console.error(error.message));
    this.redlock = new Redlock([this.redis], { retryCount: -1 });
    this.redlock.on('clientError', (error) => console.error(error.message));
  }

  async win(name) {
    const own = { lock: await this.redlock.lock(name, ttl), isOwner: true, renewedAt: now() };
    own.timer = setInterval(() => this.extend(own), ttl / 3);
    return own;
  }

  async extend(own) {
    try {
      await own.lock.extend(ttl);
      own.renewedAt = now();
    } catch (error) {
      console.error(error.message);
      own.isOwner = false;
      clearInterval(own.timer);
    }
  }

  async release(own) {
    clearInterval(own.timer);
    own.isOwner = false;
    await own.lock.unlock().catch((error) => console.error(error.message));
  }

  holds(own) {
    return own.isOwner;
  }

  leaseUntil(own) {
    return own.renewedAt + BigInt(ttl) * 1_000_000n;
  }

  async another() {
    return new Peer();
  }
}

const peer = new Peer();
peer.redis.ping().then(() => serve(peer));
