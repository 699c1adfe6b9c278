-- The tables of `sqlite:PATH`, version 1.
--
-- Promises: names and ids are data, never part of a statement. A resource row is never deleted, because term and
-- token live there. A lease row outlives the lease by an hour, so that a late `open` cannot make it again; row
-- numbers are never used twice. Times are microseconds of the store's clock: BOOTTIME of the boot named in `meta`,
-- plus `ahead_us`, so that it never goes back over a boot. Spans of leases are nanoseconds, as they were given.
-- The file knows which one it is, and where: in another one's place it may not know who owns.

CREATE TABLE meta (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    boot TEXT NOT NULL,
    ahead_us INTEGER NOT NULL,
    file_dev INTEGER NOT NULL, -- which file this is, as of that boot
    file_ino INTEGER NOT NULL,
    folder_dev INTEGER NOT NULL, -- and which folder of locks is beside it
    folder_ino INTEGER NOT NULL,
    quiet_until INTEGER -- before then nothing is granted: somebody who is not known here may still work
) STRICT;

CREATE TABLE namespace (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    longest_ns INTEGER NOT NULL DEFAULT 0,
    records INTEGER NOT NULL DEFAULT 0, -- how many the history has ever had
    turns INTEGER NOT NULL DEFAULT 0 -- the last place in the order in which leases are looked at for clearing
) STRICT;

-- No index on what a renewal changes.
CREATE TABLE lease (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace INTEGER NOT NULL REFERENCES namespace (id),
    bearer BLOB NOT NULL, -- the lease id: 16 bytes, the bearer's right
    ttl_ns INTEGER NOT NULL,
    opened_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    renewed INTEGER NOT NULL DEFAULT 0,
    ended_at INTEGER,
    ended_why INTEGER, -- 0 left, 1 expired, 2 proved
    turn INTEGER NOT NULL,
    boot TEXT NOT NULL,
    lock_dev INTEGER, -- of the lock file; absent: nobody can prove this worker's death
    lock_ino INTEGER,
    pid INTEGER, -- as seen in `pid_ns`; only a hint
    pid_started INTEGER,
    pid_ns TEXT,
    label TEXT NOT NULL,
    metadata TEXT NOT NULL,
    UNIQUE (namespace, bearer)
) STRICT;
CREATE INDEX lease_turn ON lease (namespace, turn);

CREATE TABLE resource (
    id INTEGER PRIMARY KEY,
    namespace INTEGER NOT NULL REFERENCES namespace (id),
    name TEXT NOT NULL,
    tickets INTEGER NOT NULL,
    set_opened_at INTEGER NOT NULL, -- which claim set `tickets`
    set_lease INTEGER NOT NULL,
    set_seq INTEGER NOT NULL,
    arrivals INTEGER NOT NULL,
    term INTEGER NOT NULL,
    token INTEGER NOT NULL,
    UNIQUE (namespace, name)
) STRICT;

-- As many seats as tickets, and beyond that as far as one is still held after K was lowered.
CREATE TABLE seat (
    resource INTEGER NOT NULL REFERENCES resource (id),
    ticket INTEGER NOT NULL,
    since INTEGER NOT NULL, -- free or held since
    lease INTEGER REFERENCES lease (id),
    term INTEGER,
    token INTEGER,
    PRIMARY KEY (resource, ticket)
) STRICT, WITHOUT ROWID;
CREATE INDEX seat_lease ON seat (lease) WHERE lease IS NOT NULL;

-- May name a lease that is forgotten by now.
CREATE TABLE waiter (
    resource INTEGER NOT NULL REFERENCES resource (id),
    lease INTEGER NOT NULL,
    named INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    arrival INTEGER NOT NULL,
    PRIMARY KEY (resource, lease)
) STRICT, WITHOUT ROWID;

-- By name, because a release is remembered also for a resource that nobody ever claimed.
CREATE TABLE newest (
    lease INTEGER NOT NULL,
    resource TEXT NOT NULL,
    claimed INTEGER NOT NULL DEFAULT 0,
    released INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (lease, resource)
) STRICT, WITHOUT ROWID;

CREATE TABLE notice (
    lease INTEGER NOT NULL,
    resource INTEGER NOT NULL REFERENCES resource (id),
    token INTEGER NOT NULL,
    wish INTEGER NOT NULL, -- 0 lowered, 1 asked, 2 evicted: the stronger stands
    PRIMARY KEY (lease, resource)
) STRICT, WITHOUT ROWID;

CREATE TABLE history (
    namespace INTEGER NOT NULL REFERENCES namespace (id),
    record INTEGER NOT NULL,
    at INTEGER NOT NULL,
    resource INTEGER NOT NULL REFERENCES resource (id),
    worker TEXT NOT NULL,
    ticket INTEGER NOT NULL,
    term INTEGER NOT NULL,
    token INTEGER NOT NULL,
    what INTEGER NOT NULL, -- 0 granted, 1 released, 2 failed, 3 stepped down, 4 expired, 5 died, 6 evicted
    PRIMARY KEY (namespace, record)
) STRICT, WITHOUT ROWID;
