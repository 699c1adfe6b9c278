-- One resource at a time: who is dead, who may take a free ticket, who waits, who is woken. @schema@ is the namespace,
-- quoted.
--
-- Locks: all resource rows of the request by id, then the rows of leases that seem to have run out by id, never
-- back. One's own lease is read, not locked. What is decided is read after that, in later statements.
--
-- `LATERAL (... OFFSET 0)` leaves the planner no choice: from the few rows of a resource to the lease of each, never
-- through all leases. The plans are made while the tables are small, and kept.

-- A request at work on resources: who asks, and by what time it judges.
CREATE TYPE @schema@.caller AS (
    lease bigint,
    label text,
    ttl_us bigint,
    opened_at bigint,
    expires_at bigint,
    now_us bigint,
    judged bigint, -- by this it marks the dead
    vouched bigint, -- by this it says when to look again; the same, unless the request came late
    locked bigint[], -- leases that it may mark dead
    weedy bigint[], -- resources with dead waiters
    taken bigint[], -- resources that it could lock, where it waits for none; else absent
    quarantine_from bigint,
    longest_us bigint
);

-- How long a waiter with this ttl leaves a free ticket to the one before it.
CREATE FUNCTION @schema@.step(ttl_us bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT greatest(100000, ttl_us / 150)
$$;

-- Writes down what happened to an ownership. The history is bounded by count.
CREATE FUNCTION @schema@.note(
    happened_at bigint, where_id bigint, called text, seat integer, its_term bigint, its_token bigint, how integer
) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    number bigint;
BEGIN
    INSERT INTO history (at, resource, worker, ticket, term, token, what)
        VALUES (happened_at, where_id, called, seat, its_term, its_token, how) RETURNING id INTO number;
    -- Now and then; those whom another is about to delete are left to it.
    IF number % 64 = 0 THEN
        DELETE FROM history WHERE id IN (
            SELECT id FROM history WHERE id <= number - (SELECT history_most FROM meta)
            ORDER BY id LIMIT 1000 FOR UPDATE SKIP LOCKED
        );
    END IF;
END $$;

-- Hints those who may take a free ticket at once, and tells the next to look one step later. The channel is made
-- from a hash of the lease id, which is a right. NOTIFY takes a lock of the whole server, so only where one waits.
CREATE FUNCTION @schema@.wake(where_id bigint, where_name text, seats integer, except_for bigint, judged bigint)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    free bigint;
BEGIN
    free := seats - (SELECT count(*) FROM ticket AS t, LATERAL (
            SELECT FROM lease WHERE id = t.lease AND ended_at IS NULL AND expires_at > judged OFFSET 0) AS l
        WHERE t.resource = where_id);
    IF free > 0 THEN
        PERFORM pg_notify(
            'tenure_' || left(encode(sha256(w.bearer), 'hex'), 32),
            CASE WHEN w.position <= free THEN 0 ELSE step(w.ttl_ns / 1000) END || ' ' || where_name
        ) FROM (
            SELECT l.id, l.bearer, l.ttl_ns,
                row_number() OVER (ORDER BY w.named DESC, w.priority DESC, w.arrival) AS position
            FROM waiter AS w, LATERAL (SELECT id, bearer, ttl_ns FROM lease
                WHERE id = w.lease AND ended_at IS NULL AND expires_at > judged OFFSET 0) AS l
            WHERE w.resource = where_id
            ORDER BY position LIMIT free + 1
        ) AS w WHERE w.id IS DISTINCT FROM except_for;
    END IF;
END $$;

-- Leaves a notice for the worker of an ownership. A stronger one that stands already stays.
CREATE FUNCTION @schema@.tell(who bigint, where_id bigint, its_token bigint, how integer) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO notice AS n (lease, resource, token, wish) VALUES (who, where_id, its_token, how)
        ON CONFLICT (lease, resource) DO UPDATE SET token = excluded.token,
        wish = CASE WHEN n.token = excluded.token THEN greatest(n.wish, excluded.wish) ELSE excluded.wish END;
END $$;

-- Drops free seats beyond K.
CREATE FUNCTION @schema@.cut_back(where_id bigint, seats integer) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    DELETE FROM ticket WHERE resource = where_id AND ticket >= greatest(seats,
        (SELECT max(ticket) + 1 FROM ticket WHERE resource = where_id AND lease IS NOT NULL));
END $$;

-- Locks what a request is about, then judges the caller's own lease. Nothing in `lease`: it is dead. One that does not
-- wait leaves out what another transaction holds.
CREATE FUNCTION @schema@.stand(
    who bytea, number bigint, vouched_for bigint, names text[], reaps boolean, waits boolean, OUT c @schema@.caller
) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    own record;
    ids bigint[];
BEGIN
    c.now_us := clock();
    IF NOT EXISTS (SELECT FROM lease WHERE bearer = who AND ended_at IS NULL) THEN
        RETURN;
    END IF;
    ids := ARRAY(SELECT r.id FROM unnest(names) AS n, LATERAL (SELECT id FROM resource WHERE name = n OFFSET 0) AS r);
    IF cardinality(ids) < cardinality(names) THEN
        -- In one order for all, so that two who make the same do not wait for each other.
        INSERT INTO resource (name)
            SELECT DISTINCT n COLLATE "C" AS n FROM unnest(names) AS n
            WHERE NOT EXISTS (SELECT FROM resource WHERE name = n) ORDER BY n
            ON CONFLICT DO NOTHING;
        ids := ARRAY(
            SELECT r.id FROM unnest(names) AS n, LATERAL (SELECT id FROM resource WHERE name = n OFFSET 0) AS r);
    END IF;
    IF waits THEN
        PERFORM FROM resource WHERE id = ANY (ids) ORDER BY id FOR NO KEY UPDATE;
    ELSE
        ids := ARRAY(SELECT id FROM resource WHERE id = ANY (ids) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED);
        c.taken := ids;
    END IF;
    c.now_us := clock();
    c.vouched := least(vouched_for, c.now_us);
    LOOP
        SELECT * INTO own FROM lease WHERE bearer = who;
        IF own.id IS NULL OR own.ended_at IS NOT NULL THEN
            RETURN;
        END IF;
        -- One that a later renewal has overtaken judges nobody: what it vouched for may be from before the clock
        -- went back.
        c.judged := CASE WHEN number < own.renewed THEN 0 ELSE c.vouched END;
        EXIT WHEN own.expires_at > c.judged;
        UPDATE lease SET ended_at = expires_at, ended_why = 1
            WHERE id = own.id AND ended_at IS NULL AND expires_at <= c.judged AND number >= renewed;
        IF FOUND THEN
            RETURN;
        END IF;
        -- A renewal came in between.
    END LOOP;
    c.lease := own.id;
    c.label := own.label;
    c.ttl_us := own.ttl_ns / 1000;
    c.opened_at := own.opened_at;
    c.expires_at := own.expires_at;
    -- Read after the locks: while they were waited for, somebody may have brought a longer ttl, or seen a new life.
    SELECT meta.quarantine_from, meta.longest_ns / 1000 INTO STRICT c.quarantine_from, c.longest_us FROM meta;
    -- By the server's clock its own lease has run out: the clock stepped, or the request is very late. It has to
    -- renew before it may judge others.
    IF own.expires_at <= c.now_us THEN
        c.judged := 0;
    END IF;
    -- Mostly nobody is dead, and then this is all.
    IF reaps AND (EXISTS (
        SELECT FROM ticket AS t, LATERAL (
            SELECT FROM lease WHERE id = t.lease AND ended_at IS NULL AND expires_at <= c.judged OFFSET 0) AS l
        WHERE t.resource = ANY (ids)
    ) OR EXISTS (
        SELECT FROM waiter AS w WHERE w.resource = ANY (ids)
            AND (SELECT ended_at IS NULL AND expires_at > c.judged FROM lease WHERE id = w.lease) IS NOT TRUE
    )) THEN
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
        IF c.locked IS NOT NULL THEN
            -- A renewal of one of them either is seen below, or finds it dead.
            PERFORM FROM lease WHERE id = ANY (c.locked) ORDER BY id FOR NO KEY UPDATE;
        END IF;
    END IF;
END $$;

-- The seats of a resource as they stand. `any_dead`: one is held by a lease that is over, or may be marked so.
CREATE FUNCTION @schema@.seats(
    c @schema@.caller, where_id bigint, tickets integer,
    OUT held integer, OUT freed_at bigint, OUT lowest integer, OUT first_end bigint, OUT any_dead boolean,
    OUT own_ticket integer, OUT own_term bigint, OUT own_token bigint
) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    SELECT count(t.lease),
        max(t.since) FILTER (WHERE t.lease IS NULL AND t.ticket < tickets),
        min(t.ticket) FILTER (WHERE t.lease IS NULL AND t.ticket < tickets),
        -- Of those who hold one: `greatest` of nothing and 0 would be 0.
        min(least(greatest(l.expires_at - c.vouched, 0), l.ttl_ns / 1000)) FILTER (WHERE l.id IS NOT NULL),
        bool_or(t.lease IS NOT NULL AND (l.id IS NULL OR l.ended_at IS NOT NULL
            OR (l.expires_at <= c.judged AND l.id = ANY (c.locked)))),
        max(t.ticket) FILTER (WHERE t.lease = c.lease),
        max(t.term) FILTER (WHERE t.lease = c.lease),
        max(t.token) FILTER (WHERE t.lease = c.lease)
    INTO held, freed_at, lowest, first_end, any_dead, own_ticket, own_term, own_token
    FROM ticket AS t LEFT JOIN LATERAL (
        SELECT id, ended_at, expires_at, ttl_ns FROM lease WHERE id = t.lease OFFSET 0) AS l ON true
    WHERE t.resource = where_id;
END $$;

-- Frees the tickets of owners that are dead, and marks them so.
CREATE FUNCTION @schema@.reap(c @schema@.caller, where_id bigint, seats integer) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    dead record;
    ending bigint;
BEGIN
    UPDATE lease SET ended_at = expires_at, ended_why = 1
        WHERE id = ANY (c.locked) AND ended_at IS NULL AND expires_at <= c.judged
        AND id IN (SELECT lease FROM ticket WHERE resource = where_id);
    FOR dead IN
        SELECT t.ticket, t.since, t.term, t.token, l.id, l.label, l.ended_at, l.ended_why
        FROM ticket AS t LEFT JOIN LATERAL (
            SELECT id, label, ended_at, ended_why FROM lease WHERE id = t.lease OFFSET 0) AS l ON true
        WHERE t.resource = where_id AND t.lease IS NOT NULL AND (l.id IS NULL OR l.ended_at IS NOT NULL)
        ORDER BY t.ticket
    LOOP
        -- A grant may come after the expiry by the server's clock, if the worker vouches for less.
        ending := greatest(coalesce(dead.ended_at, c.judged), dead.since);
        UPDATE ticket SET lease = NULL, since = ending WHERE resource = where_id AND ticket = dead.ticket;
        IF dead.id IS NOT NULL THEN
            PERFORM note(ending, where_id, dead.label, dead.ticket, dead.term, dead.token,
                CASE dead.ended_why WHEN 0 THEN 1 WHEN 2 THEN 5 ELSE 4 END);
        END IF;
    END LOOP;
    PERFORM cut_back(where_id, seats);
END $$;

-- Forgets a few dead waiters, and marks them dead.
CREATE FUNCTION @schema@.weed(c @schema@.caller, where_id bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
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
END $$;

-- Grants what the worker holds already, or what it may take now; else queues it once, and says when to look again:
-- 0 ticket term token, or 1 ahead look_again why (0 taken, 1 turn, 2 quarantine). `last`: it stepped down, and has
-- no place.
CREATE FUNCTION @schema@.settle(
    c @schema@.caller, INOUT r @schema@.resource, its_priority integer, last boolean,
    OUT said bigint[], OUT reaped boolean, OUT quarantine_from bigint
) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    s record;
    place record;
    queued boolean := false;
    left_us bigint;
    ahead bigint := 0;
    free bigint;
    turn bigint := NULL; -- 0: now; absent: taken
    later bigint;
BEGIN
    IF last THEN
        SELECT 0::bigint AS named, coalesce(min(w.priority), 0) AS priority, r.arrivals + 1 AS arrival INTO place
            FROM waiter AS w, LATERAL (
                SELECT FROM lease WHERE id = w.lease AND ended_at IS NULL AND expires_at > c.judged OFFSET 0) AS l
            WHERE w.resource = r.id;
    END IF;
    IF r.id = ANY (c.weedy) THEN
        PERFORM weed(c, r.id);
    END IF;
    SELECT * INTO s FROM seats(c, r.id, r.tickets);
    reaped := coalesce(s.any_dead, false);
    IF reaped THEN
        PERFORM reap(c, r.id, r.tickets);
        SELECT * INTO s FROM seats(c, r.id, r.tickets);
    END IF;
    -- One that is over stays over, also when the longest ttl grows.
    quarantine_from := CASE WHEN c.quarantine_from + c.longest_us > c.judged THEN c.quarantine_from END;
    left_us := least(greatest(quarantine_from + c.longest_us - c.vouched, 0), c.longest_us);
    IF s.own_ticket IS NOT NULL AND quarantine_from IS NULL THEN
        said := ARRAY[0, s.own_ticket, s.own_term, s.own_token];
        RETURN;
    END IF;
    IF s.own_ticket IS NULL THEN
        IF NOT last THEN
            SELECT w.named, w.priority, w.arrival INTO place FROM waiter AS w
                WHERE w.resource = r.id AND w.lease = c.lease;
            queued := FOUND;
            IF NOT queued THEN
                place.named := 0;
                place.priority := its_priority;
                place.arrival := r.arrivals + 1;
            END IF;
        END IF;
        SELECT count(*) INTO ahead FROM waiter AS w, LATERAL (
                SELECT FROM lease WHERE id = w.lease AND ended_at IS NULL AND expires_at > c.judged OFFSET 0) AS l
            WHERE w.resource = r.id AND w.lease <> c.lease
            AND (-w.named, -w.priority::bigint, w.arrival) < (-place.named, -place.priority::bigint, place.arrival);
    END IF;
    free := greatest(r.tickets - s.held, 0);
    IF free > 0 AND s.freed_at IS NOT NULL THEN
        turn := CASE WHEN ahead < free THEN 0
            ELSE s.freed_at + step(c.ttl_us) * least(ahead - free + 1, 10) END;
        IF turn <= c.now_us THEN
            turn := 0;
        END IF;
    END IF;
    -- One that came late may be from a lease that has run out since, which it is not to judge.
    IF quarantine_from IS NULL AND turn = 0 AND c.expires_at > c.vouched AND s.lowest IS NOT NULL THEN
        r.term := r.term + 1;
        r.token := greatest(r.token + 1, c.now_us);
        UPDATE ticket SET since = c.now_us, lease = c.lease, term = r.term, token = r.token
            WHERE resource = r.id AND ticket = s.lowest;
        IF queued THEN
            DELETE FROM waiter WHERE resource = r.id AND lease = c.lease;
        END IF;
        DELETE FROM notice WHERE lease = c.lease AND resource = r.id;
        PERFORM note(c.now_us, r.id, c.label, s.lowest, r.term, r.token, 0);
        said := ARRAY[0, s.lowest, r.term, r.token];
        RETURN;
    END IF;
    IF s.own_ticket IS NULL AND NOT queued THEN
        r.arrivals := r.arrivals + 1;
        INSERT INTO waiter (resource, lease, named, priority, arrival)
            VALUES (r.id, c.lease, place.named, place.priority, place.arrival);
    END IF;
    later := CASE WHEN ahead <= 8 THEN step(c.ttl_us) * ahead ELSE c.ttl_us END;
    said := CASE
        WHEN quarantine_from IS NOT NULL THEN ARRAY[1, ahead, left_us + later, 2]
        WHEN turn > 0 THEN ARRAY[1, ahead, least(turn - c.now_us, step(c.ttl_us) * 10), 1]
        ELSE ARRAY[1, ahead, coalesce(s.first_end, 0) + later, 0] END;
    said[3] := greatest(said[3], 1000);
END $$;
