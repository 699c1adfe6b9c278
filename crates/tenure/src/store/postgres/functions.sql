-- What workers and readers call, and the few functions that these call. @schema@ is the namespace, quoted.
--
-- The functions that are called from outside run with the rights of their owner and a fixed search path.

-- The version of the tables and functions.
CREATE OR REPLACE FUNCTION @schema@.version() RETURNS integer
LANGUAGE plpgsql STABLE @definer@ AS $$
BEGIN
    RETURN (SELECT store.version FROM store);
END $$;

-- The server's clock. Never `now()`, which is the time when the transaction began.
CREATE OR REPLACE FUNCTION @schema@.clock() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint
$$;

-- One life of this server with this data. It changes with a restart, a failover, a restore from a backup (WAL
-- timeline, start of the server) and with a schema that was dropped and created again (number of the table, id). It
-- fails on a standby. The id is part of the text, so that the server can evaluate the call in place.
DO $do$ BEGIN
    EXECUTE format($format$
        CREATE OR REPLACE FUNCTION @schema@.life() RETURNS bytea LANGUAGE sql VOLATILE AS $$
            SELECT substr(sha256(convert_to(%L || left(pg_walfile_name(pg_current_wal_lsn()), 8)
                || '-' || (date_part('epoch', pg_postmaster_start_time()) * 1000000)::bigint
                || '-' || '@schema@.store'::regclass::oid, 'UTF8')), 1, 16)
        $$ $format$, (SELECT store.id || '-' FROM @schema@.store));
END $do$;

-- The records with these keys: for each that exists its place in `keys`, version, stamp and value.
-- The clock is read last, so that it is not before any stamp.
CREATE OR REPLACE FUNCTION @schema@.read(
    keys text[],
    OUT life bytea, OUT now_us bigint, OUT places integer[], OUT versions bigint[], OUT stamps bigint[],
    OUT texts text[]
) LANGUAGE plpgsql STABLE @definer@ @planned@ AS $$
#variable_conflict use_column
BEGIN
    SELECT array_agg(k.place::integer), array_agg(r.version), array_agg(r.stamp), array_agg(r.value)
        INTO places, versions, stamps, texts
        FROM unnest(keys) WITH ORDINALITY AS k (key, place) JOIN record AS r ON r.key = k.key;
    life := life();
    now_us := clock();
END $$;

-- The first records after `after` and before `before`, in the order of their keys.
CREATE OR REPLACE FUNCTION @schema@.list(
    after text, before text, most integer,
    OUT life bytea, OUT now_us bigint, OUT keys text[], OUT versions bigint[], OUT stamps bigint[], OUT texts text[]
) LANGUAGE plpgsql STABLE @definer@ @planned@ AS $$
#variable_conflict use_column
BEGIN
    SELECT array_agg(r.key), array_agg(r.version), array_agg(r.stamp), array_agg(r.value)
        INTO keys, versions, stamps, texts
        FROM (SELECT * FROM record WHERE key > after AND key < before ORDER BY key LIMIT most) AS r;
    life := life();
    now_us := clock();
END $$;

-- The newest entries of one resource, or of all, oldest first.
CREATE OR REPLACE FUNCTION @schema@.history(
    of_resource text, most bigint, OUT now_us bigint, OUT times bigint[], OUT entries text[]
) LANGUAGE plpgsql STABLE @definer@ @planned@ AS $$
#variable_conflict use_column
BEGIN
    IF of_resource IS NULL THEN
        SELECT array_agg(h.at ORDER BY h.id), array_agg(h.entry ORDER BY h.id) INTO times, entries
            FROM (SELECT * FROM history ORDER BY id DESC LIMIT most) AS h;
    ELSE
        SELECT array_agg(h.at ORDER BY h.id), array_agg(h.entry ORDER BY h.id) INTO times, entries
            FROM (SELECT * FROM history WHERE resource = of_resource ORDER BY resource DESC, id DESC LIMIT most) AS h;
    END IF;
    now_us := clock();
END $$;

-- Applies each change that finds what it expects; see `Backend::commit`. All-or-nothing per change, not per call.
--
-- `opens` and `closes` are the windows, one per change. The arrays `r_*` are the records: first the `creates` that
-- are written and expected not to exist, then up to `writes` the others that are written (deleted if there is no
-- value), then those that are only expected. Entries and signals name their change by its place.
--
-- Promises. Written rows are locked in the order of their keys, and new rows are inserted in that order after that, so
-- no two commits wait for each other. The clock is read when nothing is left to wait for. Rows that are only expected
-- are compared but not locked: a lock on them would make every grant write a lock into `meta`.
--
-- Answers `done` per change, absent if the life is another; and the records that differ, by their place.
CREATE OR REPLACE FUNCTION @schema@.commit(
    within bytea, opens bigint[], closes bigint[],
    creates integer, writes integer,
    r_change integer[], r_key text[], r_expected bigint[], r_version bigint[], r_value text[],
    h_change integer[], h_resource text[], h_at bigint[], h_entry text[],
    s_change integer[], s_channel text[], s_text text[],
    OUT life bytea, OUT now_us bigint, OUT stamp_us bigint, OUT done boolean[],
    OUT places integer[], OUT versions bigint[], OUT stamps bigint[], OUT texts text[]
) LANGUAGE plpgsql VOLATILE @definer@ @planned@ SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    failed integer[];
BEGIN
    life := life();
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        -- A snapshot from the beginning would not show what was committed while this waited for a lock.
        RAISE EXCEPTION USING ERRCODE = 'TN001', MESSAGE = 'transactions are '
            || current_setting('transaction_isolation') || ', and have to be read committed';
    END IF;
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    IF life <> within THEN
        now_us := clock();
        RETURN;
    END IF;

    IF writes > 0 THEN
        PERFORM FROM record WHERE key = ANY (r_key[1:writes]) ORDER BY key FOR NO KEY UPDATE;
    END IF;
    IF creates > 0 THEN
        INSERT INTO record (key, version, stamp, value)
            SELECT k.key, 0, 0, '' FROM unnest(r_key[1:creates]) AS k (key) ORDER BY k.key COLLATE "C"
            ON CONFLICT DO NOTHING;
    END IF;
    stamp_us := clock();

    -- A row that is to be created is there, at version 0, unless somebody else was faster.
    SELECT array_agg(e.change), array_agg(e.place::integer),
            array_agg(r.version), array_agg(r.stamp), array_agg(r.value)
        INTO failed, places, versions, stamps, texts
        FROM unnest(r_change, r_key, r_expected) WITH ORDINALITY AS e (change, key, expected, place)
        LEFT JOIN record AS r ON r.key = e.key
        WHERE CASE WHEN e.place <= writes THEN r.version IS DISTINCT FROM e.expected
            ELSE coalesce(r.version, 0) <> e.expected END;
    done := ARRAY(
        SELECT coalesce(w.opens <= stamp_us, true) AND coalesce(stamp_us < w.closes, true)
            AND (failed IS NULL OR w.place <> ALL (failed))
        FROM unnest(opens, closes) WITH ORDINALITY AS w (opens, closes, place) ORDER BY w.place);

    IF writes > 0 THEN
        UPDATE record AS r SET version = w.version, stamp = stamp_us, value = w.value
            FROM unnest(r_change[1:writes], r_key[1:writes], r_version[1:writes], r_value[1:writes])
                AS w (change, key, version, value)
            WHERE r.key = w.key AND w.value IS NOT NULL AND done[w.change];
        IF array_position(r_value[1:writes], NULL) IS NOT NULL OR creates > 0 AND NOT (true = ALL (done)) THEN
            -- Besides what is to be deleted: the rows that were inserted for changes that are not applied.
            DELETE FROM record AS r USING unnest(r_change[1:writes], r_key[1:writes], r_value[1:writes])
                    AS w (change, key, value)
                WHERE r.key = w.key AND CASE WHEN done[w.change] THEN w.value IS NULL ELSE r.version = 0 END;
        END IF;
    END IF;
    IF h_change IS NOT NULL THEN
        INSERT INTO history (resource, at, entry)
            SELECT h.resource, coalesce(h.at, stamp_us), h.entry
            FROM unnest(h_change, h_resource, h_at, h_entry) WITH ORDINALITY AS h (change, resource, at, entry, place)
            WHERE done[h.change] ORDER BY h.place;
        -- About once per 100 entries, down to the newest 10 000; what another commit is deleting is left to it.
        IF random() * 100 < cardinality(h_change) THEN
            DELETE FROM history WHERE id IN (
                SELECT id FROM history WHERE id <= (SELECT id FROM history ORDER BY id DESC OFFSET 10000 LIMIT 1)
                ORDER BY id LIMIT 5000 FOR UPDATE SKIP LOCKED);
        END IF;
    END IF;
    IF s_change IS NOT NULL THEN
        PERFORM pg_notify(s.channel, stamp_us || ' ' || s.text)
            FROM unnest(s_change, s_channel, s_text) AS s (change, channel, text) WHERE done[s.change];
    END IF;
    now_us := clock();
END $$;

-- LISTEN and UNLISTEN, as functions: their statements would show the names of channels in logs.
CREATE OR REPLACE FUNCTION @schema@.listen(channel text) RETURNS void LANGUAGE plpgsql VOLATILE @definer@ AS $$
BEGIN
    EXECUTE format('LISTEN %I', channel);
END $$;
CREATE OR REPLACE FUNCTION @schema@.unlisten(channels text[]) RETURNS void LANGUAGE plpgsql VOLATILE @definer@ AS $$
DECLARE
    channel text;
BEGIN
    FOREACH channel IN ARRAY channels LOOP
        EXECUTE format('UNLISTEN %I', channel);
    END LOOP;
END $$;

-- What of the server's configuration bears on the promises.
CREATE OR REPLACE FUNCTION @schema@.settings(
    OUT fsync text, OUT full_page_writes text, OUT synchronous_commit text, OUT standby_names text, OUT standbys bigint
) LANGUAGE plpgsql STABLE @definer@ AS $$
BEGIN
    fsync := current_setting('fsync');
    full_page_writes := current_setting('full_page_writes');
    synchronous_commit := current_setting('synchronous_commit');
    standby_names := current_setting('synchronous_standby_names');
    -- An owner without the right to see more sees only that there are some. A base backup is not a standby.
    standbys := (SELECT count(*) FROM pg_stat_replication WHERE application_name IS DISTINCT FROM 'pg_basebackup');
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA @schema@ FROM PUBLIC;
