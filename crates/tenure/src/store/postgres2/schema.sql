-- The tables of a namespace, version @version@. @schema@ is its quoted name.
--
-- The tables are closed to everybody but their owner: workers and readers call the functions in functions.sql. Times
-- are microseconds since 1970 by the server's clock.

DO $$ BEGIN
    IF to_regproc('@schema@.version') IS NOT NULL AND @schema@.version() = @version@ THEN
        RETURN; -- Applying it again changes nothing.
    END IF;
    IF EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace('@schema@'))
        OR EXISTS (SELECT FROM pg_proc WHERE pronamespace = to_regnamespace('@schema@')) THEN
        RAISE EXCEPTION USING ERRCODE = 'TN003', MESSAGE = 'the schema @schema@ holds tables or functions of another '
            'version of Tenure, or of something else; choose another namespace, or drop the schema first';
    END IF;
END $$;

CREATE SCHEMA IF NOT EXISTS @schema@;
REVOKE ALL ON SCHEMA @schema@ FROM PUBLIC;

-- One row. `id` is drawn when the namespace is created and is part of its life.
CREATE TABLE IF NOT EXISTS @schema@.store (
    only boolean PRIMARY KEY DEFAULT true CHECK (only),
    version integer NOT NULL,
    id uuid NOT NULL DEFAULT gen_random_uuid()
);

-- The records. A page has room for a second copy of its rows and no index covers a column that changes, so that
-- renewals are heap-only updates. Version 0 is only seen inside a commit that creates the row.
CREATE TABLE IF NOT EXISTS @schema@.record (
    key text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL,
    stamp bigint NOT NULL,
    value text NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 200);

CREATE TABLE IF NOT EXISTS @schema@.history (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    resource text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    entry text NOT NULL
);
CREATE INDEX IF NOT EXISTS history_resource ON @schema@.history (resource, id);
