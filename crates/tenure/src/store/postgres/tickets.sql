-- Claims and releases, and what they share: one request about many resources. @schema@ is the namespace, quoted.

-- Writes back what belongs to a resource as a whole.
CREATE FUNCTION @schema@.save(r @schema@.resource) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE resource SET tickets = r.tickets, set_opened_at = r.set_opened_at, set_lease = r.set_lease,
        arrivals = r.arrivals, term = r.term, token = r.token WHERE id = r.id;
    RETURN FOUND;
END $$;

-- Ends this quarantine, unless it has become longer meanwhile.
CREATE FUNCTION @schema@.lift(quarantine bigint, known_ns bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE meta SET quarantine_from = NULL WHERE quarantine_from = quarantine AND longest_ns <= known_ns;
    RETURN FOUND;
END $$;

-- Changes K, if this claim may: of two leases the one that was opened later counts, of one lease the later claim.
CREATE FUNCTION @schema@.resize(
    c @schema@.caller, INOUT r @schema@.resource, seats integer, repeated boolean, OUT resized boolean
) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    is_new boolean := r.tickets = 0;
    done boolean;
BEGIN
    resized := false;
    IF NOT (is_new OR c.opened_at > r.set_opened_at OR (r.set_lease = c.lease AND NOT repeated)) THEN
        RETURN;
    END IF;
    r.set_opened_at := c.opened_at;
    r.set_lease := c.lease;
    IF r.tickets = seats THEN
        RETURN;
    END IF;
    r.tickets := seats;
    IF is_new THEN
        INSERT INTO ticket (resource, ticket, since)
            SELECT r.id, number, c.now_us FROM generate_series(0, seats - 1) AS number;
        RETURN;
    END IF;
    resized := true;
    done := cut_back(r.id, seats);
    INSERT INTO ticket (resource, ticket, since)
        SELECT r.id, number, c.now_us
        FROM generate_series((SELECT count(*) FROM ticket WHERE resource = r.id), seats - 1) AS number;
    -- After K was lowered the owners of the highest tickets are asked to hand over.
    PERFORM tell(t.lease, r.id, t.token, 0) FROM ticket AS t JOIN lease AS l ON l.id = t.lease
        WHERE t.resource = r.id AND t.ticket >= seats AND l.ended_at IS NULL;
END $$;

-- Per resource, as one atomic step: the same grant again, a grant, or a place in the queue.
-- numbers: four for each resource, as of `settle`, or 2 0 0 0 where it is stale, 4 0 0 0 where another transaction
-- holds it and this one does not wait.
CREATE FUNCTION @schema@.claim(
    who bytea, number bigint, vouched_for bigint, heard bigint, patience integer,
    wanted text[], tickets integer[], priorities integer[], waits boolean,
    @answer@
) @changes@ AS $$
#variable_conflict use_column
DECLARE
    c caller := stand(who, number, vouched_for, heard, patience, wanted, true, waits);
    quarantine bigint := c.quarantine_from;
    one caller;
    before resource;
    r resource;
    known record;
    sized record;
    settled record;
    done boolean;
BEGIN
    now_us := c.now_us;
    longest_ns := c.longest_ns;
    incarnation := c.incarnation;
    IF NOT c.seen OR c.lease IS NULL THEN
        verdict := CASE WHEN c.seen THEN 7 ELSE 0 END;
        RETURN;
    END IF;
    verdict := 3;
    numbers := '{}';
    FOR i IN 1 .. cardinality(wanted) LOOP
        -- What is newer than anything that this lease has asked about it is noted at once.
        WITH here AS (
            SELECT r, r.id, c.taken IS NULL OR r.id = ANY (c.taken) AS taken FROM resource AS r WHERE r.name = wanted[i]
        ), asked AS (
            INSERT INTO newest AS n (lease, resource, claimed) SELECT c.lease, id, number FROM here WHERE taken AND number > 0
                ON CONFLICT (lease, resource) DO UPDATE SET claimed = excluded.claimed
                    WHERE n.claimed < excluded.claimed AND n.released < excluded.claimed
                RETURNING claimed
        )
        SELECT here.r AS its, here.taken, asked.claimed IS NOT NULL AS newer INTO STRICT known
            FROM here LEFT JOIN asked ON true;
        before := known.its;
        IF NOT known.taken THEN
            numbers := numbers || ARRAY[4, 0, 0, 0]::bigint[];
            CONTINUE;
        END IF;
        one := c;
        IF NOT known.newer THEN
            -- A repetition may ask again for what was given; not for what was taken away since.
            IF NOT EXISTS (SELECT FROM newest AS n WHERE n.lease = c.lease AND n.resource = before.id
                    AND n.claimed = number AND n.released < number)
                OR NOT EXISTS (SELECT FROM ticket AS t
                    WHERE t.resource = before.id AND t.lease IS NOT DISTINCT FROM c.lease)
                AND NOT EXISTS (SELECT FROM waiter AS w WHERE w.resource = before.id AND w.lease = c.lease)
            THEN
                numbers := numbers || ARRAY[2, 0, 0, 0]::bigint[];
                CONTINUE;
            END IF;
            -- What a repetition vouches for may be outdated, as with any late request.
            one.judged := 0;
        END IF;
        sized := resize(one, before, tickets[i], NOT known.newer);
        settled := settle(one, sized.r, priorities[i], false);
        r := settled.r;
        c.quarantine_from := settled.quarantine_from;
        numbers := numbers || settled.said;
        IF settled.reaped OR sized.resized THEN
            done := wake(r.id, r.name, r.tickets, c.lease, one.judged);
        END IF;
        IF NOT settled.saved AND r IS DISTINCT FROM before THEN
            done := save(r);
        END IF;
    END LOOP;
    IF quarantine IS NOT NULL AND c.quarantine_from IS NULL THEN
        done := lift(quarantine, c.longest_ns);
    END IF;
    shown_us := clock();
END $$;

-- As of this request the lease holds and wants nothing of these; `how`: 0 released, 1 failed, 2 stepped down, which
-- queues it again in the same step. numbers: four for each: 0 ticket term token or 1 ahead look_again why where it
-- is queued again, 2 0 0 0 where the release is stale, 3 0 0 0 where nothing is held or wanted any more, 4 0 0 0 where
-- another transaction holds it and this one does not wait.
CREATE FUNCTION @schema@.release(
    who bytea, number bigint, vouched_for bigint, heard bigint, patience integer, left_ones text[], how integer[],
    waits boolean,
    @answer@
) @changes@ AS $$
#variable_conflict use_column
DECLARE
    c caller := stand(who, number, vouched_for, heard, patience, left_ones, 2 = ANY (how), waits);
    quarantine bigint := c.quarantine_from;
    r resource;
    freed record;
    settled record;
    done boolean;
BEGIN
    now_us := c.now_us;
    longest_ns := c.longest_ns;
    incarnation := c.incarnation;
    IF NOT c.seen OR c.lease IS NULL THEN
        verdict := CASE WHEN c.seen THEN 7 ELSE 0 END;
        RETURN;
    END IF;
    verdict := 4;
    numbers := '{}';
    FOR i IN 1 .. cardinality(left_ones) LOOP
        -- A claim forbids older releases, too: a store that forgot the release, but not the claim after it, must
        -- not free what was granted since. All the rest follows from `newer`.
        WITH here AS (
            SELECT r, r.id, c.taken IS NULL OR r.id = ANY (c.taken) AS taken FROM resource AS r WHERE r.name = left_ones[i]
        ), newer AS (
            INSERT INTO newest AS n (lease, resource, released) SELECT c.lease, id, number FROM here WHERE taken AND number > 0
                ON CONFLICT (lease, resource) DO UPDATE SET released = excluded.released
                    WHERE n.claimed < excluded.released AND n.released < excluded.released
                RETURNING resource AS id
        ), told AS (
            DELETE FROM notice WHERE lease = c.lease AND resource = (SELECT id FROM newer)
        ), waited AS (
            DELETE FROM waiter WHERE resource = (SELECT id FROM newer) AND lease = c.lease
        ), seat AS (
            -- Not by the index on the lease: it may hold ten thousand.
            UPDATE ticket SET lease = NULL, since = c.now_us
                WHERE resource = (SELECT id FROM newer) AND lease IS NOT DISTINCT FROM c.lease
                RETURNING resource, ticket, term, token
        ), entry AS (
            INSERT INTO history (at, resource, worker, ticket, term, token, what)
                SELECT c.now_us, resource, c.label, ticket, term, token, how[i] + 1 FROM seat
                RETURNING id, ticket
        )
        SELECT here.r AS its, here.taken, newer.id IS NULL AS outdated, entry.ticket, entry.id AS entry INTO STRICT freed
            FROM here LEFT JOIN newer ON true LEFT JOIN entry ON true;
        IF NOT freed.taken OR freed.outdated THEN
            numbers := numbers || ARRAY[CASE WHEN freed.taken THEN 2 ELSE 4 END, 0, 0, 0]::bigint[];
            CONTINUE;
        END IF;
        r := freed.its;
        IF freed.ticket IS NOT NULL THEN
            done := prune(freed.entry);
            IF freed.ticket >= r.tickets THEN
                done := cut_back(r.id, r.tickets);
            END IF;
        END IF;
        IF how[i] = 2 AND r.tickets > 0 THEN
            settled := settle(c, r, 0, true);
            numbers := numbers || settled.said;
            c.quarantine_from := settled.quarantine_from;
            IF NOT settled.saved THEN
                done := save(settled.r);
            END IF;
        ELSE
            numbers := numbers || ARRAY[3, 0, 0, 0]::bigint[];
        END IF;
        IF freed.ticket IS NOT NULL THEN
            done := wake(r.id, r.name, r.tickets, c.lease, c.judged);
        END IF;
    END LOOP;
    IF quarantine IS NOT NULL AND c.quarantine_from IS NULL THEN
        done := lift(quarantine, c.longest_ns);
    END IF;
    shown_us := clock();
END $$;
