-- What version 2 of the tables of `sqlite:PATH` has more: jobs.
--
-- Promises: a job is never deleted, and its latest run neither: that is what makes once once. `through` only rises, in
-- the same transaction that names who runs it. One row per occurrence; the latest has the largest, and only it can be
-- running.

CREATE TABLE job (
    resource INTEGER PRIMARY KEY REFERENCES resource (id),
    plan TEXT NOT NULL,
    through INTEGER NOT NULL, -- milliseconds since 1970
    ran INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    interrupted INTEGER NOT NULL DEFAULT 0,
    missed INTEGER NOT NULL DEFAULT 0,
    skipped INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE run (
    resource INTEGER NOT NULL REFERENCES job (resource),
    occurrence INTEGER NOT NULL, -- milliseconds since 1970
    attempt INTEGER NOT NULL,
    token INTEGER NOT NULL, -- of the latest attempt
    key_token INTEGER NOT NULL, -- of the first
    worker TEXT NOT NULL,
    began_wall_us INTEGER NOT NULL, -- by the wall clock, for people
    began_at INTEGER NOT NULL, -- by the store's clock, to count how long it takes
    state INTEGER NOT NULL, -- 0 running, 1 ran, 2 failed, 3 interrupted
    took_us INTEGER,
    missed INTEGER NOT NULL,
    skipped INTEGER NOT NULL,
    note TEXT NOT NULL,
    PRIMARY KEY (resource, occurrence)
) STRICT, WITHOUT ROWID;
