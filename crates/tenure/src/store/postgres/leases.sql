-- Leases: `open`, `renew`, `held`, `close`, and what every operation begins with. @schema@ is the namespace, quoted.
--
-- Every operation answers the same columns: `verdict` (0 see first, 1 opened, 2 kept, 3 claimed, 4 released, 5 held,
-- 6 closed, 7 gone, 8 stale, 9 released and not on the disk yet), the stamp, and the rest as numbers and names in the order that its head gives.
-- What their heads have in common stands in schema.rs, by the names between the at signs.
-- They find every row by an index, also where a plan was made while a table was small and it has grown since.
-- `clock_timestamp()` is read after the locks, never `now()`: after a wait that would be in the past. By what it shows
-- then (`now_us`) all is decided. Once more it is read at the very end (`shown_us`): what comes between that and the answer
-- holds back what a worker can vouch for, and with it the end of a dead owner's lease; and whatever a connection does for
-- the first time is compiled and planned first, which takes longer than all the rest.
-- Functions are called in assignments, which evaluate them in place; PERFORM and SELECT INTO would each be a statement,
-- with all that the server does around one. And every expression is made ready anew in every transaction, so there are few:
-- statements put their columns where they are needed, and most of what can be said in one expression is.

-- What the server's clock shows, in microseconds. In floating point, which is exact to the microsecond: `extract` would count
-- in decimals. Evaluated in place, without a call.
CREATE FUNCTION @schema@.shown() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint
$$;

-- Says that this cannot be the time: tokens stay below 2^53.
CREATE FUNCTION @schema@.beyond() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'TN003', MESSAGE = 'the clock of the server is not before the year 2200';
END $$;

-- The same, by which is decided.
CREATE FUNCTION @schema@.clock() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    now_us bigint := @schema@.shown();
BEGIN
    RETURN CASE WHEN now_us BETWEEN 1 AND @last_us@ THEN now_us ELSE @schema@.beyond() END;
END $$;

-- What tells one life of this server with this data from another, but for the system identifier.
CREATE FUNCTION @schema@.life(meta_oid oid) RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)
        || '-' || (date_part('epoch', pg_postmaster_start_time()) * 1000000)::bigint || '-' || meta_oid
$$;

-- Says why nothing can be done here.
CREATE FUNCTION @schema@.refuse() RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION USING ERRCODE = 'TN001', MESSAGE = 'the server is a standby';
    END IF;
    -- A snapshot of the beginning would not see what was decided while this waited for a lock.
    RAISE EXCEPTION USING ERRCODE = 'TN002', MESSAGE =
        'transactions are ' || current_setting('transaction_isolation') || ', and have to be read committed';
END $$;

-- The store as it is. `seen` says whether `see` has to be called first.
CREATE FUNCTION @schema@.arrive(
    patience integer, heard bigint, OUT incarnation text, OUT longest_ns bigint, OUT seen boolean
) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    done boolean := @ready@;
BEGIN
    SELECT CASE WHEN m.life = n.life THEN m.system
            ELSE (SELECT system_identifier FROM pg_control_system())::text END || '-' || n.life,
        m.longest_ns, m.life = n.life AND m.longest_ns >= heard
    INTO STRICT incarnation, longest_ns, seen
    FROM meta AS m, LATERAL (SELECT life(m.tableoid) OFFSET 0) AS n (life) WHERE m.one;
END $$;

-- Notices a new life of the store, from which on there is a quarantine, and what the caller knows of the longest
-- ttl. A step of its own, so that nobody who waits for a resource holds this row.
CREATE FUNCTION @schema@.see(patience integer, heard bigint) RETURNS void
@changes@ AS $$
DECLARE
    m record;
    now_life text;
BEGIN
    PERFORM arrive(patience, heard);
    SELECT meta.tableoid AS number, meta.life, meta.longest_ns INTO STRICT m FROM meta FOR UPDATE;
    now_life := life(m.number);
    IF m.longest_ns < heard THEN
        UPDATE meta SET longest_ns = heard;
    END IF;
    IF m.life <> now_life THEN
        UPDATE meta SET life = now_life, quarantine_from = clock(),
            system = (SELECT system_identifier FROM pg_control_system());
    END IF;
END $$;

-- Forgets a few leases that died an hour ago, as far as the caller can vouch for it. One that a resource still
-- names is kept until that is looked at. Waits for nobody.
CREATE FUNCTION @schema@.sweep(now_us bigint, vouched_for bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    hour CONSTANT bigint := 3600000000;
    first bigint := (SELECT min(id) FROM lease);
    last bigint := (SELECT max(id) FROM lease);
    -- In a variable: in the statement it would be drawn anew for every row.
    start bigint := first + floor(random() * (last - first + 1))::bigint;
    over bigint[];
BEGIN
    -- Eight in a row from anywhere: those who live for ever at the front do not hide the others.
    SELECT array_agg(l.id) INTO over FROM (
        SELECT id, expires_at, ended_at FROM lease
        WHERE id >= start ORDER BY id LIMIT 8
    ) AS l
    WHERE CASE WHEN l.ended_at IS NOT NULL THEN l.ended_at + hour <= now_us
        ELSE l.expires_at + hour <= least(vouched_for, now_us) AND vouched_for IS NOT NULL END;
    IF over IS NULL THEN
        RETURN false;
    END IF;
    SELECT array_agg(id) INTO over FROM (
        SELECT id FROM lease WHERE id = ANY (over) AND NOT EXISTS (SELECT FROM ticket WHERE ticket.lease = lease.id)
        ORDER BY id FOR UPDATE SKIP LOCKED
    ) AS ours;
    DELETE FROM lease WHERE id = ANY (over);
    DELETE FROM notice WHERE lease = ANY (over);
    DELETE FROM newest WHERE lease = ANY (over);
    RETURN true;
END $$;

-- Creates the lease, live until now + ttl. Repeating it changes nothing and marks nobody: a late repetition of a
-- first contact must not end by a clock that stepped since what has been renewed since.
CREATE FUNCTION @schema@.open(
    who bytea, number bigint, vouched_for bigint, heard bigint, patience integer,
    span_ns bigint, called text, tells text,
    @answer@
) @changes@ AS $$
#variable_conflict use_column
DECLARE
    a record;
    own record;
    done boolean;
BEGIN
    a := arrive(patience, greatest(heard, span_ns));
    incarnation := a.incarnation;
    longest_ns := a.longest_ns;
    IF NOT a.seen THEN
        verdict := 0;
        now_us := clock();
        RETURN;
    END IF;
    done := sweep(clock(), vouched_for);
    done := rehearse(patience);
    now_us := clock();
    INSERT INTO lease (bearer, ttl_ns, opened_at, expires_at, label, metadata)
        SELECT who, span_ns, now_us, now_us + span_ns / 1000, called, tells
        WHERE NOT EXISTS (SELECT FROM lease WHERE bearer = who)
        ON CONFLICT DO NOTHING;
    IF FOUND THEN
        verdict := 1;
    ELSE
        SELECT l.ended_at, l.expires_at, l.renewed INTO own FROM lease AS l WHERE l.bearer = who;
        verdict := CASE
            WHEN own.ended_at IS NULL AND (number < own.renewed OR own.expires_at > least(vouched_for, now_us)) THEN 1
            ELSE 7 END;
    END IF;
    shown_us := shown();
END $$;

-- Extends a live lease, and never makes one: death is stable. Locks its row and nothing else.
-- numbers: whether there are more notices, then token and wish of each; names: their resources.
CREATE FUNCTION @schema@.renew(
    who bytea, number bigint, vouched_for bigint, heard bigint, patience integer,
    @answer@
) @changes@ AS $$
#variable_conflict use_column
DECLARE
    a record;
    own record;
    told record;
BEGIN
    a := arrive(patience, heard);
    incarnation := a.incarnation;
    longest_ns := a.longest_ns;
    IF NOT a.seen THEN
        verdict := 0;
        now_us := clock();
        RETURN;
    END IF;
    SELECT l.id, l.ended_at, l.expires_at, l.renewed, l.ttl_ns INTO own
        FROM lease AS l WHERE l.bearer = who FOR NO KEY UPDATE;
    numbers := ARRAY[0];
    FOR told IN
        SELECT r.name, n.token, n.wish
        FROM notice AS n, LATERAL (SELECT name FROM resource WHERE id = n.resource OFFSET 0) AS r
        WHERE n.lease = own.id ORDER BY r.name LIMIT 65
    LOOP
        IF cardinality(names) = 64 THEN
            numbers[1] := 1;
        ELSE
            numbers := numbers || ARRAY[told.token, told.wish];
            names := names || told.name;
        END IF;
    END LOOP;
    now_us := clock();
    IF own.id IS NULL OR own.ended_at IS NOT NULL THEN
        verdict := 7;
        RETURN;
    END IF;
    -- Before it judges anything: what it vouches for may be outdated, too.
    IF number <= own.renewed THEN
        verdict := 8;
        RETURN;
    END IF;
    IF own.expires_at <= least(vouched_for, now_us) THEN
        UPDATE lease SET ended_at = expires_at, ended_why = 1 WHERE id = own.id;
        verdict := 7;
        RETURN;
    END IF;
    UPDATE lease SET expires_at = now_us + ttl_ns / 1000, renewed = number WHERE id = own.id;
    verdict := 2;
    shown_us := shown();
END $$;

-- What the lease holds. numbers: ticket and token of each; names: the resources.
CREATE FUNCTION @schema@.held(
    who bytea, patience integer,
    @answer@
) @changes@ AS $$
#variable_conflict use_column
DECLARE
    a record;
    own bigint;
    held record;
BEGIN
    a := arrive(patience, 0);
    incarnation := a.incarnation;
    longest_ns := a.longest_ns;
    SELECT id INTO own FROM lease WHERE bearer = who AND ended_at IS NULL;
    verdict := CASE WHEN own IS NULL THEN 7 ELSE 5 END;
    FOR held IN
        SELECT r.name, t.ticket, t.token
        FROM ticket AS t, LATERAL (SELECT name FROM resource WHERE id = t.resource OFFSET 0) AS r
        WHERE t.lease = own ORDER BY r.name
    LOOP
        numbers := numbers || ARRAY[held.ticket, held.token];
        names := names || held.name;
    END LOOP;
    now_us := clock();
END $$;

-- Ends the lease in one write; every ticket and place in a queue goes with it. Closing a dead one changes nothing.
--
-- First it locks the resources that it holds, as a claim does: who queues there at this moment is waited for, and so is
-- not missed by the hints. One that somebody keeps locked does not keep the lease from its end.
-- Of nobody it goes through all of that for nothing: see `rehearse`.
CREATE FUNCTION @schema@.close(
    who bytea, patience integer, why smallint,
    @answer@
) @changes@ AS $$
#variable_conflict use_column
DECLARE
    a record;
    own record;
    ids bigint[];
    setting text;
BEGIN
    a := arrive(patience, 0);
    incarnation := a.incarnation;
    longest_ns := a.longest_ns;
    verdict := 6;
    ids := ARRAY(
        SELECT r.id
        FROM ticket AS t, LATERAL (SELECT id, name FROM resource WHERE id = t.resource OFFSET 0) AS r
        WHERE t.lease = (SELECT id FROM lease WHERE bearer = who AND ended_at IS NULL) ORDER BY r.name LIMIT 250);
    IF cardinality(ids) > 0 OR who IS NULL THEN
        BEGIN
            -- Other requests may queue behind this one.
            setting := set_config('lock_timeout', least(patience, 100)::text, true);
            PERFORM FROM resource WHERE id = ANY (ids) ORDER BY id FOR NO KEY UPDATE;
        EXCEPTION WHEN lock_not_available THEN
            -- All of these locks are given back, and who queues there looks again by itself.
        END;
        setting := set_config('lock_timeout', patience::text, true);
    END IF;
    SELECT l.id, l.ended_at, l.expires_at INTO own FROM lease AS l WHERE l.bearer = who FOR NO KEY UPDATE;
    now_us := clock();
    IF own.ended_at IS NOT NULL OR (own.id IS NULL AND who IS NOT NULL) THEN
        RETURN;
    END IF;
    UPDATE lease SET ended_at = least(now_us, expires_at), ended_why = why WHERE id = own.id;
    PERFORM wake(r.id, r.name, r.tickets, NULL, now_us, NULL) FROM (
        SELECT r.id, r.name, r.tickets
        FROM ticket AS t, LATERAL (SELECT id, name, tickets FROM resource WHERE id = t.resource OFFSET 0) AS r
        WHERE t.lease = own.id ORDER BY r.name LIMIT 250
    ) AS r;
END $$;
