-- Claims and releases, and what they share: one request about many resources. @schema@ is the namespace, quoted.

-- Writes back what belongs to a resource as a whole.
CREATE FUNCTION @schema@.save(r @schema@.resource) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE resource SET tickets = r.tickets, set_opened_at = r.set_opened_at, set_lease = r.set_lease,
        arrivals = r.arrivals, term = r.term, token = r.token WHERE id = r.id;
END $$;

-- Changes K, if this claim may: of two leases the one that was opened later counts, of one lease the later claim.
CREATE FUNCTION @schema@.resize(
    c @schema@.caller, INOUT r @schema@.resource, seats integer, repeated boolean, OUT resized boolean
) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    is_new boolean := r.tickets = 0;
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
    PERFORM cut_back(r.id, seats);
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
    quarantine bigint;
    seen boolean;
    c caller;
    one caller;
    r resource;
    before resource;
    newest_claim bigint;
    newest_release bigint;
    known boolean;
    repeated boolean;
    sized record;
    settled record;
BEGIN
    SELECT * INTO incarnation, longest_ns, quarantine, seen FROM arrive(patience, heard);
    IF NOT seen THEN
        verdict := 0;
        now_us := clock();
        RETURN;
    END IF;
    c := stand(who, number, vouched_for, wanted, true, waits);
    now_us := c.now_us;
    IF c.lease IS NULL THEN
        verdict := 7;
        RETURN;
    END IF;
    verdict := 3;
    numbers := '{}';
    FOR i IN 1 .. cardinality(wanted) LOOP
        SELECT * INTO before FROM resource WHERE name = wanted[i];
        IF before.id <> ALL (c.taken) THEN
            numbers := numbers || ARRAY[4, 0, 0, 0]::bigint[];
            CONTINUE;
        END IF;
        SELECT count(*) > 0, coalesce(max(n.claimed), 0), coalesce(max(n.released), 0)
            INTO known, newest_claim, newest_release
            FROM newest AS n WHERE n.lease = c.lease AND n.resource = before.id;
        -- A repetition may ask again for what was given; not for what was taken away since.
        repeated := number = newest_claim;
        IF number < newest_claim OR number <= newest_release OR (repeated
            AND NOT EXISTS (SELECT FROM ticket AS t
                WHERE t.resource = before.id AND t.lease IS NOT DISTINCT FROM c.lease)
            AND NOT EXISTS (SELECT FROM waiter AS w WHERE w.resource = before.id AND w.lease = c.lease))
        THEN
            numbers := numbers || ARRAY[2, 0, 0, 0]::bigint[];
            CONTINUE;
        END IF;
        IF NOT known THEN
            INSERT INTO newest (lease, resource, claimed) VALUES (c.lease, before.id, number);
        ELSIF NOT repeated THEN
            UPDATE newest SET claimed = number WHERE lease = c.lease AND resource = before.id;
        END IF;
        one := c;
        IF repeated THEN
            -- What a repetition vouches for may be outdated, as with any late request.
            one.judged := 0;
        END IF;
        SELECT * INTO sized FROM resize(one, before, tickets[i], repeated);
        SELECT * INTO settled FROM settle(one, sized.r, priorities[i], false);
        r := settled.r;
        c.quarantine_from := settled.quarantine_from;
        numbers := numbers || settled.said;
        IF settled.reaped OR sized.resized THEN
            PERFORM wake(r.id, r.name, r.tickets, c.lease, one.judged);
        END IF;
        IF r IS DISTINCT FROM before THEN
            PERFORM save(r);
        END IF;
    END LOOP;
    IF quarantine IS NOT NULL AND c.quarantine_from IS NULL THEN
        UPDATE meta SET quarantine_from = NULL
            WHERE quarantine_from = quarantine AND longest_ns / 1000 <= c.longest_us;
    END IF;
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
    quarantine bigint;
    seen boolean;
    c caller;
    r resource;
    before resource;
    newest_claim bigint;
    newest_release bigint;
    known boolean;
    seat record;
    settled record;
    said bigint[];
BEGIN
    SELECT * INTO incarnation, longest_ns, quarantine, seen FROM arrive(patience, heard);
    IF NOT seen THEN
        verdict := 0;
        now_us := clock();
        RETURN;
    END IF;
    c := stand(who, number, vouched_for, left_ones, 2 = ANY (how), waits);
    now_us := c.now_us;
    IF c.lease IS NULL THEN
        verdict := 7;
        RETURN;
    END IF;
    verdict := 4;
    numbers := '{}';
    FOR i IN 1 .. cardinality(left_ones) LOOP
        SELECT * INTO before FROM resource WHERE name = left_ones[i];
        IF before.id <> ALL (c.taken) THEN
            numbers := numbers || ARRAY[4, 0, 0, 0]::bigint[];
            CONTINUE;
        END IF;
        SELECT count(*) > 0, coalesce(max(n.claimed), 0), coalesce(max(n.released), 0)
            INTO known, newest_claim, newest_release
            FROM newest AS n WHERE n.lease = c.lease AND n.resource = before.id;
        -- A claim forbids older releases, too: a store that forgot the release, but not the claim after it, must
        -- not free what was granted since.
        IF number <= newest_claim OR number <= newest_release THEN
            numbers := numbers || ARRAY[2, 0, 0, 0]::bigint[];
            CONTINUE;
        END IF;
        IF NOT known THEN
            INSERT INTO newest (lease, resource, released) VALUES (c.lease, before.id, number);
        ELSE
            UPDATE newest SET released = number WHERE lease = c.lease AND resource = before.id;
        END IF;
        r := before;
        said := ARRAY[3, 0, 0, 0];
        DELETE FROM notice WHERE lease = c.lease AND resource = r.id;
        DELETE FROM waiter WHERE resource = r.id AND lease = c.lease;
        -- Not by the index on the lease: it may hold ten thousand.
        UPDATE ticket SET lease = NULL, since = c.now_us WHERE resource = r.id AND lease IS NOT DISTINCT FROM c.lease
            RETURNING ticket, term, token INTO seat;
        IF seat.ticket IS NOT NULL THEN
            PERFORM note(c.now_us, r.id, c.label, seat.ticket, seat.term, seat.token, how[i] + 1);
            IF seat.ticket >= r.tickets THEN
                PERFORM cut_back(r.id, r.tickets);
            END IF;
        END IF;
        IF how[i] = 2 AND r.tickets > 0 THEN
            SELECT * INTO settled FROM settle(c, r, 0, true);
            r := settled.r;
            said := settled.said;
            c.quarantine_from := settled.quarantine_from;
        END IF;
        numbers := numbers || said;
        IF seat.ticket IS NOT NULL THEN
            PERFORM wake(r.id, r.name, r.tickets, c.lease, c.judged);
        END IF;
        IF r IS DISTINCT FROM before THEN
            PERFORM save(r);
        END IF;
    END LOOP;
    IF quarantine IS NOT NULL AND c.quarantine_from IS NULL THEN
        UPDATE meta SET quarantine_from = NULL
            WHERE quarantine_from = quarantine AND longest_ns / 1000 <= c.longest_us;
    END IF;
END $$;
