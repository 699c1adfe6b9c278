-- Claims and releases, and what they share: one request about many resources. @schema@ is the namespace, quoted.

-- Ends this quarantine, unless it has become longer meanwhile.
CREATE FUNCTION @schema@.lift(quarantine bigint, known_ns bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE meta SET quarantine_from = NULL WHERE quarantine_from = quarantine AND longest_ns <= known_ns;
    RETURN FOUND;
END $$;

-- Changes K, if this claim may: of two leases the one that was opened later counts, of one lease the later claim. The resource
-- itself is written back by who calls this.
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
    judged bigint := c.judged;
    r resource;
    repeated boolean;
    is_sized boolean;
    resized boolean;
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
    FOR i IN 1 .. cardinality(wanted) LOOP
        c.judged := judged;
        resized := false;
        r := c.single;
        IF r.id IS NULL THEN
            SELECT its.* INTO STRICT r FROM resource AS its WHERE its.name = wanted[i];
            IF r.id <> ALL (c.taken) THEN
                numbers := numbers || ARRAY[4, 0, 0, 0]::bigint[];
                CONTINUE;
            END IF;
        END IF;
        -- What is newer than anything that this lease has asked about it is noted at once.
        UPDATE newest SET claimed = number
            WHERE lease = c.lease AND resource = r.id AND claimed < number AND released < number;
        IF NOT FOUND THEN
            INSERT INTO newest (lease, resource, claimed) SELECT c.lease, r.id, number WHERE number > 0
                ON CONFLICT DO NOTHING;
        END IF;
        repeated := NOT FOUND;
        IF repeated THEN
            -- A repetition may ask again for what was given; not for what was taken away since.
            IF NOT EXISTS (SELECT FROM newest AS n WHERE n.lease = c.lease AND n.resource = r.id
                    AND n.claimed = number AND n.released < number)
                OR NOT EXISTS (SELECT FROM ticket AS t
                    WHERE t.resource = r.id AND t.lease IS NOT DISTINCT FROM c.lease)
                AND NOT EXISTS (SELECT FROM waiter AS w WHERE w.resource = r.id AND w.lease = c.lease)
            THEN
                numbers := numbers || ARRAY[2, 0, 0, 0]::bigint[];
                CONTINUE;
            END IF;
            -- What a repetition vouches for may be outdated, as with any late request.
            c.judged := 0;
        END IF;
        is_sized := r.tickets <> tickets[i] OR c.opened_at > r.set_opened_at;
        IF is_sized THEN
            sized := resize(c, r, tickets[i], repeated);
            r := sized.r;
            resized := sized.resized;
        END IF;
        settled := settle(c, r, priorities[i], false);
        c.quarantine_from := settled.quarantine_from;
        numbers := numbers || settled.said;
        IF is_sized AND settled.saved IS NOT TRUE THEN
            UPDATE resource SET tickets = r.tickets, set_opened_at = r.set_opened_at, set_lease = r.set_lease
                WHERE id = r.id;
        END IF;
        IF settled.reaped OR resized THEN
            done := wake(r.id, r.name, r.tickets, c.lease, c.judged, NULL);
        END IF;
    END LOOP;
    IF quarantine IS NOT NULL AND c.quarantine_from IS NULL THEN
        done := lift(quarantine, c.longest_ns);
    END IF;
    shown_us := shown();
END $$;

-- As of this request the lease holds and wants nothing of these; `how`: 0 released, 1 failed, 2 stepped down, which
-- queues it again in the same step. numbers: four for each: 0 ticket term token or 1 ahead look_again why where it
-- is queued again, 2 0 0 0 where the release is stale, 3 0 0 0 where nothing is held or wanted any more, 4 0 0 0 where
-- another transaction holds it and this one does not wait.
-- Where it wakes somebody that one is told before the disk has it (verdict 9), and the caller has to call `flush` before it
-- relies on anything: the next grant waits for the disk, and so for all that was written before it.
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
    FOR i IN 1 .. cardinality(left_ones) LOOP
        r := c.single;
        IF r.id IS NULL THEN
            SELECT its.* INTO STRICT r FROM resource AS its WHERE its.name = left_ones[i];
            IF r.id <> ALL (c.taken) THEN
                numbers := numbers || ARRAY[4, 0, 0, 0]::bigint[];
                CONTINUE;
            END IF;
        END IF;
        -- A claim forbids older releases, too: a store that forgot the release, but not the claim after it, must
        -- not free what was granted since.
        UPDATE newest SET released = number
            WHERE lease = c.lease AND resource = r.id AND claimed < number AND released < number;
        IF NOT FOUND THEN
            INSERT INTO newest (lease, resource, released) SELECT c.lease, r.id, number WHERE number > 0
                ON CONFLICT DO NOTHING;
        END IF;
        IF NOT FOUND THEN
            numbers := numbers || ARRAY[2, 0, 0, 0]::bigint[];
            CONTINUE;
        END IF;
        WITH told AS (
            DELETE FROM notice WHERE lease = c.lease AND resource = r.id
        ), waited AS (
            DELETE FROM waiter WHERE resource = r.id AND lease = c.lease
        ), seat AS (
            -- Not by the index on the lease: it may hold ten thousand.
            UPDATE ticket SET lease = NULL, since = c.now_us
                WHERE resource = r.id AND lease IS NOT DISTINCT FROM c.lease RETURNING ticket, term, token
        ), entry AS (
            INSERT INTO history (at, resource, worker, ticket, term, token, what)
                SELECT c.now_us, r.id, c.label, ticket, term, token, how[i] + 1 FROM seat RETURNING id, ticket
        )
        SELECT max(ticket) AS ticket, max(id) AS entry, (SELECT count(*) FROM ticket WHERE resource = r.id) AS seats
            INTO STRICT freed FROM entry;
        IF freed.ticket IS NOT NULL THEN
            done := CASE WHEN freed.entry % 64 = 0 THEN prune() END;
            IF freed.ticket >= r.tickets THEN
                done := cut_back(r.id, r.tickets);
            END IF;
        END IF;
        IF how[i] = 2 AND r.tickets > 0 THEN
            settled := settle(c, r, 0, true);
            numbers := numbers || settled.said;
            c.quarantine_from := settled.quarantine_from;
        ELSE
            numbers := numbers || ARRAY[3, 0, 0, 0]::bigint[];
        END IF;
        IF freed.ticket IS NOT NULL THEN
            -- Where there is but this one seat, nobody holds any now.
            IF wake(r.id, r.name, r.tickets, c.lease, c.judged,
                CASE WHEN freed.seats = 1 AND how[i] <> 2 THEN 0 END)
            THEN
                verdict := 9;
            END IF;
        END IF;
    END LOOP;
    IF quarantine IS NOT NULL AND c.quarantine_from IS NULL THEN
        done := lift(quarantine, c.longest_ns);
    END IF;
    IF verdict = 9 THEN
        done := set_config('synchronous_commit', 'off', true) IS NULL;
    END IF;
    shown_us := shown();
END $$;

-- Waits until the disk has everything that was committed before: its own commit comes after that in the log. Says whether
-- the release of this number is among it. A server that crashed meanwhile, or another one, may have forgotten it.
CREATE FUNCTION @schema@.flush(who bytea, number bigint, patience integer, left_ones text[]) RETURNS boolean @changes@ AS $$
#variable_conflict use_column
DECLARE
    done boolean := @ready@;
BEGIN
    done := pg_logical_emit_message(true, 'tenure', '') IS NULL;
    -- What was released together is in one transaction.
    RETURN EXISTS (
        SELECT FROM resource AS r, LATERAL (SELECT FROM newest
            WHERE lease = (SELECT id FROM lease WHERE bearer = who) AND resource = r.id AND released >= number OFFSET 0) AS n
        WHERE r.name = ANY (left_ones));
END $$;
