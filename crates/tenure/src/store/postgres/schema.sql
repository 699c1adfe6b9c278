-- The tables of a namespace, version @version@. @schema@ is its quoted name.
--
-- The tables are closed to everybody but their owner: workers and readers call the functions in functions.sql. Times
-- are microseconds since 1970 by the server's clock.

DO $$ BEGIN
    -- Nested, because the call cannot even be parsed if there is no such function.
    IF to_regproc('@schema@.version') IS NOT NULL THEN
        IF @schema@.version() = @version@ THEN
            RETURN; -- Applying it again changes nothing.
        END IF;
    END IF;
    IF EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace('@schema@'))
        OR EXISTS (SELECT FROM pg_proc WHERE pronamespace = to_regnamespace('@schema@')) THEN
        RAISE EXCEPTION USING ERRCODE = 'TN002', MESSAGE = 'the schema @schema@ holds tables or functions of another '
            'version of Tenure, or of something else; choose another namespace, or drop the schema first';
    END IF;
    -- Not IF NOT EXISTS, which needs the right to create one even if it exists.
    IF to_regnamespace('@schema@') IS NULL THEN
        CREATE SCHEMA @schema@;
    END IF;
END $$;

REVOKE ALL ON SCHEMA @schema@ FROM PUBLIC;

-- One row. `id` is drawn when the namespace is created and is part of its life.
CREATE TABLE IF NOT EXISTS @schema@.store (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version integer NOT NULL,
    id uuid NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO @schema@.store (version) VALUES (@version@) ON CONFLICT DO NOTHING;

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
