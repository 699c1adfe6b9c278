// A candidate in Node: does what crates/bench/src/peers/protocol.rs describes.
'use strict';

const readline = require('node:readline');
const { setTimeout: sleep } = require('node:timers/promises');

const GAP = 500_000_000n;

// Node reads CLOCK_MONOTONIC only; who starts it says how far CLOCK_BOOTTIME is ahead.
const AHEAD = BigInt(process.env.BOOTTIME_AHEAD);
const now = () => process.hrtime.bigint() + AHEAD;

const say = (word, ...numbers) => process.stdout.write(`${[word, ...numbers].join(' ')}\n`);

// `peer` has win(name), release(own), holds(own), leaseUntil(own) and another(); all but two of them are async.
function serve(peer) {
  let own = null;
  let owner = peer;
  const held = [];
  const holds = () => own !== null && peer.holds(own);
  const watch = watcher(holds);

  async function campaign(candidate, name) {
    const won = await candidate.win(name);
    say('own', now());
    [own, owner] = [won, candidate];
  }

  const told = {
    campaign: (name) => void campaign(peer, name),
    release: async () => {
      const over = own;
      own = null;
      const releasedAt = now();
      await owner.release(over);
      say('released', releasedAt);
    },
    lease: () => say('lease', own === null ? 0 : peer.leaseUntil(own)),
    check: () => say('check', Number(holds())),
    cost: () => say('cost', cost(holds)),
    watch: watch.begin,
    last: watch.last,
    hold: async (count) => {
      while (held.length < Number(count)) held.push(await peer.win(`hold.${process.pid}.${held.length}`));
      say('held', held.length);
    },
    wait: async (count, span, name) => {
      for (let i = 0; i < Number(count); i += 1) {
        void campaign(await peer.another(), name);
        await sleep(Number(span) / Number(count));
      }
      say('queued', count);
    },
  };
  const lines = readline.createInterface({ input: process.stdin });
  lines.on('line', (line) => {
    const [word, ...values] = line.split(' ');
    void told[word](...values);
  });
  lines.on('close', () => process.exit(0));
  say('ready');
}

function watcher(holds) {
  let [yesAt, newest, checkedAt] = [0n, false, 0n];
  const check = () => {
    const beganAt = now();
    newest = holds();
    if (newest) yesAt = beganAt;
    if (beganAt - checkedAt > GAP) say('resumed', Number(newest));
    checkedAt = beganAt;
  };
  return {
    begin: () => {
      checkedAt = now();
      setInterval(check, 1);
    },
    last: () => say('last', yesAt, Number(newest)),
  };
}

// Picoseconds of one check: the median of a few spans with as many as fit into them.
function cost(holds) {
  const costs = [];
  let yes = 0;
  for (let span = 0; span < 9; span += 1) {
    const began = process.hrtime.bigint();
    let checks = 0;
    let spent = 0;
    while (spent < 50e6) {
      for (let i = 0; i < 10_000; i += 1) yes += holds() ? 1 : 0;
      checks += 10_000;
      spent = Number(process.hrtime.bigint() - began);
    }
    costs.push(Math.round((spent * 1000) / checks));
  }
  costs.sort((a, b) => a - b);
  // What was counted is used, so that nothing is optimized away.
  return yes < 0 ? 0 : costs[4];
}

module.exports = { now, serve };
