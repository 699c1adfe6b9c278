-- The tables of a namespace, version @version@. @schema@ is its name, quoted.
--
-- Promises: a resource row is never deleted, because term and token live there, nor is a job with the latest of its runs,
-- because what is done once is done once for ever. A lease row outlives the lease by
-- an hour, so that a late `open` cannot make it again; row numbers are never used twice. Nobody but the functions
-- writes here, so there are no foreign keys: each would take a lock more. Times are microseconds since 1970 of the
-- server's clock; the spans of leases are nanoseconds, as they were given.

-- Who may call what is said by grants, not by default.
REVOKE ALL ON SCHEMA @schema@ FROM PUBLIC;

CREATE TABLE @schema@.meta (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version integer NOT NULL,
    system text NOT NULL, -- system identifier, as of `life`
    life text NOT NULL, -- WAL timeline, start of the server, and this table's own number: a restored one has another
    quarantine_from bigint, -- absent: everybody of before has stopped
    longest_ns bigint NOT NULL DEFAULT 0,
    history_most bigint NOT NULL DEFAULT 10000,
    secret uuid NOT NULL DEFAULT gen_random_uuid() -- makes the channels of messages: who does not know it hears and sends none
) WITH (fillfactor = 50);

-- No index on what a renewal changes, and room in each page: so every renewal is a heap-only update.
CREATE TABLE @schema@.lease (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    bearer bytea NOT NULL UNIQUE, -- the lease id: 16 bytes, the bearer's right
    ttl_ns bigint NOT NULL,
    opened_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    renewed bigint NOT NULL DEFAULT 0,
    ended_at bigint,
    ended_why smallint, -- 0 left, 1 expired, 2 proved
    label text NOT NULL,
    metadata text NOT NULL
) WITH (fillfactor = 40, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 200);

CREATE TABLE @schema@.resource (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    tickets integer NOT NULL DEFAULT 0, -- 0: named, but never claimed
    set_opened_at bigint NOT NULL DEFAULT 0, -- the opening of the lease that set `tickets`, and that lease
    set_lease bigint NOT NULL DEFAULT 0,
    arrivals bigint NOT NULL DEFAULT 0,
    term bigint NOT NULL DEFAULT 0,
    token bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 60);

-- As many as there are tickets, and beyond that as far as one is still held after K was lowered.
CREATE TABLE @schema@.ticket (
    resource bigint NOT NULL,
    ticket integer NOT NULL,
    since bigint NOT NULL, -- free or held since
    lease bigint, -- absent: free
    term bigint, -- of the one who holds it, or held it last
    token bigint,
    PRIMARY KEY (resource, ticket)
) WITH (fillfactor = 60);
CREATE INDEX ticket_lease ON @schema@.ticket (lease) WHERE lease IS NOT NULL;

-- In the order of: named by an operator, the last named first; then by priority; then arrival.
CREATE TABLE @schema@.waiter (
    resource bigint NOT NULL,
    lease bigint NOT NULL,
    named bigint NOT NULL,
    priority integer NOT NULL,
    arrival bigint NOT NULL,
    PRIMARY KEY (resource, lease)
);

-- The newest claim and release of a lease, per resource. Goes when the lease is forgotten.
CREATE TABLE @schema@.newest (
    lease bigint NOT NULL,
    resource bigint NOT NULL,
    claimed bigint NOT NULL DEFAULT 0,
    released bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (lease, resource)
) WITH (fillfactor = 60);

-- What is to be told to a lease. Goes with the release, or when the lease is forgotten.
CREATE TABLE @schema@.notice (
    lease bigint NOT NULL,
    resource bigint NOT NULL,
    token bigint NOT NULL,
    wish smallint NOT NULL, -- 0 lowered, 1 asked, 2 evicted: the stronger stands
    PRIMARY KEY (lease, resource)
);

CREATE TABLE @schema@.history (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at bigint NOT NULL,
    resource bigint NOT NULL,
    worker text NOT NULL,
    ticket integer NOT NULL,
    term bigint NOT NULL,
    token bigint NOT NULL,
    what smallint NOT NULL -- 0 granted, 1 released, 2 failed, 3 stepped down, 4 expired, 5 died, 6 evicted
);

CREATE TABLE @schema@.job (
    resource bigint PRIMARY KEY,
    plan text NOT NULL,
    through bigint NOT NULL, -- every occurrence up to here is claimed, or does not count: milliseconds since 1970
    ran bigint NOT NULL DEFAULT 0, -- the rest is how often what has happened
    failed bigint NOT NULL DEFAULT 0,
    interrupted bigint NOT NULL DEFAULT 0,
    missed bigint NOT NULL DEFAULT 0,
    skipped bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 60);

-- The last 50 of each job.
CREATE TABLE @schema@.run (
    resource bigint NOT NULL,
    occurrence bigint NOT NULL,
    attempt bigint NOT NULL,
    token bigint NOT NULL, -- of the latest attempt
    key_token bigint NOT NULL, -- of the first
    worker text NOT NULL,
    began_at bigint NOT NULL,
    state smallint NOT NULL, -- 0 running, which only the latest can be; 1 ran, 2 failed, 3 interrupted
    took_us bigint, -- absent: nobody has said how it ended
    missed bigint NOT NULL,
    skipped bigint NOT NULL,
    note text NOT NULL DEFAULT '',
    PRIMARY KEY (resource, occurrence)
) WITH (fillfactor = 60);
