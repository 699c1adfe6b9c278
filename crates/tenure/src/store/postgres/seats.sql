-- One resource at a time: who is dead, who may take a free ticket, who waits, who is woken. @schema@ is the namespace,
-- quoted.
--
-- Locks: all resource rows of the request by id, then the rows of leases that seem to have run out by id, never
-- back. One's own lease is read, not locked. What is decided is read after that, in later statements; the row of a single
-- resource is read by the statement that locks it, as it is when the lock is there.
--
-- `LATERAL (... OFFSET 0)` leaves the planner no choice: from the few rows of a resource to the lease of each, never
-- through all leases. The plans are made while the tables are small, and kept.

-- A request at work on resources: the store as it found it, who asks, and by what time it judges.
CREATE TYPE @schema@.caller AS (
    seen boolean, -- not: `see` has to be called first
    incarnation text,
    longest_ns bigint,
    quarantine_from bigint,
    now_us bigint,
    lease bigint, -- absent: it is dead
    label text,
    ttl_us bigint,
    opened_at bigint,
    expires_at bigint,
    vouched bigint, -- by this it says when to look again
    judged bigint, -- by this it marks the dead: the same, unless the request came late
    taken bigint[], -- resources that it could lock, where it waits for none; else absent
    single @schema@.resource, -- where it is about one, and waits for it: that, as it was locked
    locked bigint[], -- leases that it may mark dead
    weedy bigint[] -- resources with dead waiters
);

-- How long a waiter with this ttl leaves a free ticket to the one before it.
CREATE FUNCTION @schema@.step(ttl_us bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT greatest(100000, ttl_us / 150)
$$;

-- Keeps the history bounded by count: called now and then, where the number of a new entry is a multiple of 64.
CREATE FUNCTION @schema@.prune() RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    -- Those whom another is about to delete are left to it.
    DELETE FROM history WHERE id IN (
        SELECT id FROM history WHERE id <= (
            -- By count: numbers are also used by what was taken back.
            SELECT id FROM history ORDER BY id DESC OFFSET (SELECT history_most FROM meta) LIMIT 1)
        ORDER BY id LIMIT 1000 FOR UPDATE SKIP LOCKED
    );
    RETURN true;
END $$;

-- Writes down what happened to an ownership.
CREATE FUNCTION @schema@.note(
    happened_at bigint, where_id bigint, called text, seat integer, its_term bigint, its_token bigint, how integer
) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    number bigint;
BEGIN
    INSERT INTO history (at, resource, worker, ticket, term, token, what)
        VALUES (happened_at, where_id, called, seat, its_term, its_token, how) RETURNING id INTO number;
    RETURN CASE WHEN number % 64 = 0 THEN prune() END;
END $$;

-- Hints those who may take a free ticket at once, and tells the next to look one step later. The channel is made
-- from a hash of the lease id, which is a right. NOTIFY takes a lock of the whole server, so only where one waits. Says
-- whether anybody was told. `held`: how many tickets are, where that is known.
CREATE FUNCTION @schema@.wake(
    where_id bigint, where_name text, seats integer, except_for bigint, judged bigint, held bigint
) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    free bigint := seats - held;
    told boolean := false;
    done boolean;
    w record;
BEGIN
    IF free IS NULL THEN
        free := seats - (SELECT count(*) FROM ticket AS t, LATERAL (
                SELECT FROM lease WHERE id = t.lease AND ended_at IS NULL AND expires_at > judged OFFSET 0) AS l
            WHERE t.resource = where_id);
    END IF;
    IF free <= 0 THEN
        RETURN false;
    END IF;
    FOR w IN
        SELECT l.id, l.bearer, l.ttl_ns
        FROM waiter AS w, LATERAL (SELECT id, bearer, ttl_ns FROM lease
            WHERE id = w.lease AND ended_at IS NULL AND expires_at > judged OFFSET 0) AS l
        WHERE w.resource = where_id
        ORDER BY w.named DESC, w.priority DESC, w.arrival LIMIT free + 1
    LOOP
        IF w.id IS DISTINCT FROM except_for THEN
            told := true;
            done := pg_notify('tenure_' || left(encode(sha256(w.bearer), 'hex'), 32),
                CASE WHEN free > 0 THEN 0 ELSE step(w.ttl_ns / 1000) END || ' ' || where_name) IS NULL;
        END IF;
        free := free - 1;
    END LOOP;
    RETURN told;
END $$;

-- Leaves a notice for the worker of an ownership. A stronger one that stands already stays.
CREATE FUNCTION @schema@.tell(who bigint, where_id bigint, its_token bigint, how integer) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO notice AS n (lease, resource, token, wish) VALUES (who, where_id, its_token, how)
        ON CONFLICT (lease, resource) DO UPDATE SET token = excluded.token,
        wish = CASE WHEN n.token = excluded.token THEN greatest(n.wish, excluded.wish) ELSE excluded.wish END;
    RETURN true;
END $$;

-- Drops free seats beyond K.
CREATE FUNCTION @schema@.cut_back(where_id bigint, seats integer) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    DELETE FROM ticket WHERE resource = where_id AND ticket >= greatest(seats,
        (SELECT max(ticket) + 1 FROM ticket WHERE resource = where_id AND lease IS NOT NULL));
    RETURN FOUND;
END $$;

-- Locks those who seem to be dead.
CREATE FUNCTION @schema@.suspect(INOUT c @schema@.caller, ids bigint[], heard bigint) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    SELECT array_agg(lease) FILTER (WHERE is_open), array_agg(resource) FILTER (WHERE waits)
        INTO c.locked, c.weedy FROM (
        SELECT t.resource, t.lease, true AS is_open, false AS waits FROM ticket AS t, LATERAL (
            SELECT FROM lease WHERE id = t.lease AND ended_at IS NULL AND expires_at <= c.judged OFFSET 0) AS l
        WHERE t.resource = ANY (ids)
        UNION ALL
        SELECT resource, lease, is_open, true FROM (
            SELECT w.resource, w.lease, l.id IS NOT NULL AND l.ended_at IS NULL AS is_open, row_number() OVER (
                PARTITION BY w.resource ORDER BY w.named DESC, w.priority DESC, w.arrival) AS position
            FROM waiter AS w LEFT JOIN LATERAL (
                SELECT id, ended_at, expires_at FROM lease WHERE id = w.lease OFFSET 0) AS l ON true
            WHERE w.resource = ANY (ids) AND (l.id IS NULL OR l.ended_at IS NOT NULL OR l.expires_at <= c.judged)
        ) AS dead WHERE position <= 8
    ) AS suspects;
    -- A renewal of one of them either is seen later, or finds it dead.
    PERFORM FROM lease WHERE id = ANY (c.locked) ORDER BY id FOR NO KEY UPDATE;
    -- Once more, after the last lock: while one was waited for, somebody may have brought a longer ttl, or seen a new life.
    SELECT @store@ INTO STRICT @store_of_c@ FROM meta AS m WHERE m.one;
END $$;

-- Locks what a request is about, then looks who asks. One that does not wait leaves out what another transaction
-- holds.
CREATE FUNCTION @schema@.stand(
    who bytea, number bigint, vouched_for bigint, heard bigint, patience integer, names text[], reaps boolean,
    waits boolean, OUT c @schema@.caller
) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    done boolean := @ready@;
    ids bigint[];
    all_made boolean := false;
    renewed bigint;
BEGIN
    LOOP
        -- All or none: who holds some already and makes the others could wait for one who needs both.
        IF waits AND cardinality(names) = 1 THEN
            SELECT r, ARRAY[r.id] INTO c.single, ids FROM resource AS r WHERE r.name = names[1] FOR NO KEY UPDATE;
        ELSIF waits THEN
            ids := ARRAY(SELECT id FROM resource WHERE name = ANY (names) AND (all_made
                OR (SELECT count(*) FROM resource WHERE name = ANY (names)) = cardinality(names))
                ORDER BY id FOR NO KEY UPDATE);
        ELSE
            ids := ARRAY(SELECT id FROM resource WHERE name = ANY (names) AND (all_made
                OR (SELECT count(*) FROM resource WHERE name = ANY (names)) = cardinality(names))
                ORDER BY id FOR NO KEY UPDATE SKIP LOCKED);
        END IF;
        EXIT WHEN all_made OR cardinality(ids) > 0;
        -- In one order for all, so that two who make the same do not wait for each other. The dead make nothing.
        INSERT INTO resource (name)
            SELECT DISTINCT n COLLATE "C" AS n FROM unnest(names) AS n
            WHERE NOT EXISTS (SELECT FROM resource WHERE name = n)
                AND EXISTS (SELECT FROM lease WHERE bearer = who AND ended_at IS NULL) ORDER BY n
            ON CONFLICT DO NOTHING;
        all_made := true;
    END LOOP;
    LOOP
        -- By simple steps: what one large statement puts up before it begins would take longer than all of these.
        SELECT l.id, l.label, l.ttl_ns / 1000, l.opened_at, l.expires_at, l.renewed, @store@
            INTO STRICT c.lease, c.label, c.ttl_us, c.opened_at, c.expires_at, renewed, @store_of_c@
            FROM meta AS m LEFT JOIN lease AS l ON l.bearer = who AND l.ended_at IS NULL WHERE m.one;
        c.now_us := shown();
        c.vouched := least(vouched_for, c.now_us);
        -- A request that a later renewal has overtaken judges nobody: what it vouches for may be from before the clock
        -- went back. One whose own lease has run out by the server's clock has to renew before it may judge others: the
        -- clock stepped, or the request is very late.
        c.judged := CASE WHEN c.now_us NOT BETWEEN 1 AND @last_us@ THEN beyond()
            WHEN number < renewed OR c.expires_at <= c.now_us THEN 0 ELSE c.vouched END;
        EXIT WHEN (number >= renewed AND c.expires_at <= c.vouched) IS NOT TRUE;
        UPDATE lease AS l SET ended_at = l.expires_at, ended_why = 1
            WHERE l.id = c.lease AND l.ended_at IS NULL AND l.expires_at <= c.vouched AND number >= l.renewed;
        IF FOUND THEN
            c.lease := NULL;
            EXIT;
        END IF;
        -- A renewal came in between.
    END LOOP;
    -- Mostly nobody is dead.
    IF reaps AND c.lease IS NOT NULL AND (EXISTS (
        SELECT FROM ticket AS t, LATERAL (
            SELECT FROM lease WHERE id = t.lease AND ended_at IS NULL AND expires_at <= c.judged OFFSET 0) AS o
        WHERE t.resource = ANY (ids)
    ) OR EXISTS (
        SELECT FROM waiter AS w WHERE w.resource = ANY (ids)
            AND (SELECT ended_at IS NULL AND expires_at > c.judged FROM lease WHERE id = w.lease) IS NOT TRUE
    )) THEN
        c := suspect(c, ids, heard);
    END IF;
    IF NOT waits THEN
        c.taken := ids;
    END IF;
END $$;

-- Frees the tickets of owners that are dead, and marks them so.
CREATE FUNCTION @schema@.reap(c @schema@.caller, where_id bigint, seats integer) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    entries bigint[];
    done boolean;
BEGIN
    UPDATE lease SET ended_at = expires_at, ended_why = 1
        WHERE id = ANY (c.locked) AND ended_at IS NULL AND expires_at <= c.judged
        AND id IN (SELECT lease FROM ticket WHERE resource = where_id);
    -- A grant may come after the expiry by the server's clock, if the worker vouches for less.
    WITH dead AS (
        SELECT t.ticket, t.term, t.token, l.id, l.label, l.ended_why,
            greatest(coalesce(l.ended_at, c.judged), t.since) AS ending
        FROM ticket AS t LEFT JOIN LATERAL (
            SELECT id, label, ended_at, ended_why FROM lease WHERE id = t.lease OFFSET 0) AS l ON true
        WHERE t.resource = where_id AND t.lease IS NOT NULL AND (l.id IS NULL OR l.ended_at IS NOT NULL)
    ), freed AS (
        UPDATE ticket AS t SET lease = NULL, since = dead.ending FROM dead
            WHERE t.resource = where_id AND t.ticket = dead.ticket
    ), entry AS (
        INSERT INTO history (at, resource, worker, ticket, term, token, what)
            SELECT ending, where_id, label, ticket, term, token, CASE ended_why WHEN 0 THEN 1 WHEN 2 THEN 5 ELSE 4 END
            FROM dead WHERE id IS NOT NULL ORDER BY ticket
            RETURNING id
    )
    SELECT coalesce(array_agg(id), '{}') INTO STRICT entries FROM entry;
    FOR i IN 1 .. cardinality(entries) LOOP
        done := CASE WHEN entries[i] % 64 = 0 THEN prune() END;
    END LOOP;
    done := cut_back(where_id, seats);
    RETURN true;
END $$;

-- Forgets a few dead waiters, and marks them dead.
CREATE FUNCTION @schema@.weed(c @schema@.caller, where_id bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    dead bigint[];
BEGIN
    SELECT array_agg(lease) INTO dead FROM (
        SELECT w.lease FROM waiter AS w LEFT JOIN LATERAL (
            SELECT id, ended_at, expires_at FROM lease WHERE id = w.lease OFFSET 0) AS l ON true
        WHERE w.resource = where_id AND (l.id IS NULL OR l.ended_at IS NOT NULL
            OR (l.expires_at <= c.judged AND l.id = ANY (c.locked)))
        ORDER BY w.named DESC, w.priority DESC, w.arrival LIMIT 8
    ) AS first;
    UPDATE lease SET ended_at = expires_at, ended_why = 1 WHERE id = ANY (dead) AND ended_at IS NULL;
    DELETE FROM waiter WHERE resource = where_id AND lease = ANY (dead);
    RETURN FOUND;
END $$;

-- Gives a free ticket to a lease, and writes the resource back.
CREATE FUNCTION @schema@.take(
    where_id bigint, seat integer, who bigint, called text, at_us bigint, its_term bigint, its_token bigint,
    seats integer, set_at bigint, set_by bigint
) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    entry bigint;
BEGIN
    WITH taken AS (
        UPDATE ticket SET since = at_us, lease = who, term = its_term, token = its_token
            WHERE resource = where_id AND ticket = seat RETURNING ticket
    ), waited AS (
        DELETE FROM waiter WHERE resource = where_id AND lease = who
    ), told AS (
        DELETE FROM notice WHERE lease = who AND resource = where_id
    ), whole AS (
        UPDATE resource SET term = its_term, token = its_token, tickets = seats, set_opened_at = set_at, set_lease = set_by
            WHERE id = where_id
    )
    INSERT INTO history (at, resource, worker, ticket, term, token, what)
        SELECT at_us, where_id, called, ticket, its_term, its_token, 0 FROM taken RETURNING id INTO entry;
    RETURN CASE WHEN entry % 64 = 0 THEN prune() END;
END $$;

-- Grants what the worker holds already, or what it may take now; else queues it once, and says when to look again:
-- 0 ticket term token, or 1 ahead look_again why (0 taken, 1 turn, 2 quarantine). `last`: it stepped down, and has
-- no place. `saved`: the resource was written back.
CREATE FUNCTION @schema@.settle(
    c @schema@.caller, r @schema@.resource, its_priority integer, last boolean,
    OUT said bigint[], OUT reaped boolean, OUT saved boolean, OUT quarantine_from bigint
) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    seats record;
    place record;
    own bigint[];
    any_dead boolean;
    first_end bigint; -- how long until the first of the owners is dead
    turn bigint; -- from when on it may take a free seat: 0 is now, and nothing means that all are taken
    left_us bigint;
    later bigint;
    done boolean;
BEGIN
    IF last THEN
        its_priority := (SELECT coalesce(min(w.priority), 0)
            FROM waiter AS w, LATERAL (
                SELECT FROM lease WHERE id = w.lease AND ended_at IS NULL AND expires_at > c.judged OFFSET 0) AS l
            WHERE w.resource = r.id);
    END IF;
    IF r.id = ANY (c.weedy) THEN
        done := weed(c, r.id);
    END IF;
    -- One that is over stays over, also when the longest ttl grows.
    quarantine_from := CASE WHEN c.quarantine_from + c.longest_ns / 1000 > c.judged THEN c.quarantine_from END;
    reaped := false;
    -- By simple steps, as `stand` does: mostly the first says that nobody holds a seat.
    LOOP
        SELECT r.tickets - count(lease) AS free, count(lease) AS held,
            max(since) FILTER (WHERE lease IS NULL AND ticket < r.tickets) AS freed_at,
            min(ticket) FILTER (WHERE lease IS NULL AND ticket < r.tickets) AS lowest
        INTO STRICT seats FROM ticket WHERE resource = r.id;
        EXIT WHEN seats.held = 0;
        SELECT min(least(greatest(l.expires_at - c.vouched, 0), l.ttl_ns / 1000)),
            -- By a lease that is over, or may be marked so.
            bool_or(l.id IS NULL OR l.ended_at IS NOT NULL OR (l.expires_at <= c.judged AND l.id = ANY (c.locked))),
            max(ARRAY[t.ticket, t.term, t.token]) FILTER (WHERE t.lease = c.lease)
        INTO STRICT first_end, any_dead, own FROM ticket AS t LEFT JOIN LATERAL (
            SELECT id, ended_at, expires_at, ttl_ns FROM lease WHERE id = t.lease OFFSET 0) AS l ON true
        WHERE t.resource = r.id AND t.lease IS NOT NULL;
        EXIT WHEN reaped OR any_dead IS NOT TRUE;
        reaped := reap(c, r.id, r.tickets);
        first_end := NULL;
        own := NULL;
    END LOOP;
    IF own IS NOT NULL AND quarantine_from IS NULL THEN
        said := 0::bigint || own;
        RETURN;
    END IF;
    -- The place that it has, else the one that it would get, and how many who live are before it.
    SELECT true AS queued, p.named, p.priority, p.arrival, (
            SELECT count(*) FROM waiter AS w, LATERAL (
                SELECT FROM lease WHERE id = w.lease AND ended_at IS NULL AND expires_at > c.judged OFFSET 0) AS l
            WHERE w.resource = r.id AND w.lease <> c.lease
                AND (-w.named, -w.priority::bigint, w.arrival) < (-p.named, -p.priority::bigint, p.arrival)
        ) AS ahead
    INTO place FROM waiter AS p WHERE p.resource = r.id AND p.lease = c.lease;
    IF NOT FOUND THEN
        -- An owner that asks again during a quarantine needs none.
        SELECT own IS NOT NULL AS queued, 0 AS named, its_priority AS priority, r.arrivals + 1 AS arrival,
            count(*) FILTER (WHERE own IS NULL) AS ahead
        INTO STRICT place FROM waiter AS w, LATERAL (
            SELECT FROM lease WHERE id = w.lease AND ended_at IS NULL AND expires_at > c.judged OFFSET 0) AS l
        WHERE w.resource = r.id AND w.lease <> c.lease
            AND (-w.named, -w.priority::bigint, w.arrival) < (0, -its_priority::bigint, r.arrivals + 1);
    END IF;
    IF seats.free > 0 THEN
        turn := CASE WHEN place.ahead < seats.free THEN 0
            ELSE seats.freed_at + step(c.ttl_us) * least(place.ahead - seats.free + 1, 10) END;
        turn := CASE WHEN turn > c.now_us THEN turn ELSE 0 END;
    END IF;
    -- One that came late may be from a lease that has run out since, which it is not to judge.
    IF quarantine_from IS NULL AND turn = 0 AND c.expires_at > c.vouched AND seats.lowest IS NOT NULL THEN
        said := ARRAY[0, seats.lowest, r.term + 1, greatest(r.token + 1, c.now_us)];
        done := take(r.id, seats.lowest, c.lease, c.label, c.now_us, said[3], said[4],
            r.tickets, r.set_opened_at, r.set_lease);
        saved := true;
        RETURN;
    END IF;
    IF NOT place.queued THEN
        UPDATE resource SET arrivals = place.arrival, tickets = r.tickets, set_opened_at = r.set_opened_at,
            set_lease = r.set_lease WHERE id = r.id;
        saved := true;
        INSERT INTO waiter (resource, lease, named, priority, arrival)
            VALUES (r.id, c.lease, place.named, place.priority, place.arrival);
    END IF;
    left_us := least(greatest(quarantine_from + c.longest_ns / 1000 - c.vouched, 0), c.longest_ns / 1000);
    later := CASE WHEN place.ahead <= 8 THEN step(c.ttl_us) * place.ahead ELSE c.ttl_us END;
    said := CASE
        WHEN quarantine_from IS NOT NULL THEN ARRAY[1, place.ahead, left_us + later, 2]
        WHEN turn > 0 THEN ARRAY[1, place.ahead, least(turn - c.now_us, step(c.ttl_us) * 10), 1]
        ELSE ARRAY[1, place.ahead, coalesce(first_end, 0) + later, 0] END;
    said[3] := greatest(said[3], 1000);
END $$;

-- Does what a hand-over and a take-over do, to nothing: what a connection does for the first time takes long, and it is better done when
-- nobody waits for it.
CREATE FUNCTION @schema@.rehearse(patience integer) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    nobody @schema@.caller;
    nothing @schema@.resource;
    done boolean;
BEGIN
    nothing.id := 0;
    nobody := suspect(nobody, ARRAY[nothing.id], 0);
    done := reap(nobody, nothing.id, 1);
    done := weed(nobody, nothing.id);
    done := take(nothing.id, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    done := release(NULL, 0, 0, 0, patience, '{}', '{0}', true) IS NULL;
    done := claim(NULL, 0, 0, 0, patience, '{}', '{1}', '{0}', true) IS NULL;
    done := close(NULL, patience, 0::smallint) IS NULL;
    RETURN wake(nothing.id, NULL, 1, NULL, 0, NULL);
END $$;
