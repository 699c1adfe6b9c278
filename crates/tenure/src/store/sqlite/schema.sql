-- The tables of `sqlite:PATH`, version 3. (Versions 1 and 2 held one table per kind of record; they are refused.)
--
-- Times are microseconds of the store's clock: BOOTTIME of the boot named in `host`, plus `ahead_us`, so that the
-- clock goes on where it stopped after a reboot.

-- What the file knows about itself and the place where it lies.
CREATE TABLE host (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    life BLOB NOT NULL, -- 16 random bytes, drawn when the file came to this place
    boot TEXT NOT NULL,
    ahead_us INTEGER NOT NULL,
    file_dev INTEGER NOT NULL, -- which file this is, as of that boot
    file_ino INTEGER NOT NULL,
    folder_dev INTEGER NOT NULL, -- and which folder of lock files is beside it
    folder_ino INTEGER NOT NULL,
    uncertain_since INTEGER -- when it came here, if the work of an earlier file's leases may have gone on then
) STRICT;

CREATE TABLE record (
    namespace TEXT NOT NULL,
    key TEXT NOT NULL,
    version INTEGER NOT NULL, -- 64 random bits
    stamp INTEGER NOT NULL,
    value TEXT NOT NULL,
    UNIQUE (namespace, key)
) STRICT;

CREATE TABLE history (
    namespace TEXT NOT NULL,
    number INTEGER NOT NULL,
    resource TEXT NOT NULL,
    at INTEGER NOT NULL,
    entry TEXT NOT NULL,
    PRIMARY KEY (namespace, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX history_resource ON history (namespace, resource, number);
