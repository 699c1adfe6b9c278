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

-- What `claim` does where it is not what is usual.
CREATE FUNCTION @schema@.claim_at_length(
    who bytea, number bigint, vouched_for bigint, heard bigint, patience integer,
    wanted text[], tickets integer[], priorities integer[], waits boolean,
    @answer@
) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    c @schema@.caller := stand(who, number, vouched_for, heard, patience, wanted, true, waits);
    quarantine bigint := c.quarantine_from;
    judged bigint := c.judged;
    r @schema@.resource;
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

-- Per resource, as one atomic step: the same grant again, a grant, or a place in the queue.
-- numbers: four for each resource, as of `settle`, or 2 0 0 0 where it is stale, 4 0 0 0 where another transaction
-- holds it and this one does not wait.
-- First as it mostly is after a hint: the free seat of a resource that has one, for the first who waits, and nothing new,
-- standing or dead in sight. Every statement and every expression costs a hand-over, so here are few.
-- Of nobody and nothing it goes through all of that for nothing: see `rehearse`.
CREATE FUNCTION @schema@.claim(
    who bytea, number bigint, vouched_for bigint, heard bigint, patience integer,
    wanted text[], tickets integer[], priorities integer[], waits boolean,
    @answer@
) @changes@ AS $$
#variable_conflict use_column
DECLARE
    done boolean := @ready@;
    where_id bigint;
    its_term bigint;
    its_token bigint;
    set_at bigint;
    lease_id bigint;
    called text;
    entry bigint;
BEGIN
    IF waits AND tickets = '{1}' AND cardinality(wanted) < 2 THEN
        SELECT r.id, r.term + 1, r.token + 1, r.set_opened_at INTO where_id, its_term, its_token, set_at
            FROM resource AS r WHERE r.name = wanted[1] AND r.tickets = 1 FOR NO KEY UPDATE;
        now_us := shown();
        SELECT l.id, l.label, m.longest_ns, m.system || '-' || m.life INTO lease_id, called, longest_ns, incarnation
            FROM meta AS m, LATERAL (SELECT id, label FROM lease
                    WHERE bearer = who AND ended_at IS NULL AND expires_at > now_us AND renewed <= number
                        AND opened_at <= set_at OFFSET 0) AS l,
                LATERAL (SELECT FROM newest
                    WHERE lease = l.id AND resource = where_id AND claimed < number AND released < number OFFSET 0) AS n,
                LATERAL (SELECT named, priority, arrival FROM waiter
                    WHERE resource = where_id AND lease = l.id OFFSET 0) AS p
            WHERE m.one AND m.life = life(m.tableoid) AND m.longest_ns >= heard AND m.quarantine_from IS NULL
                AND now_us BETWEEN 1 AND @last_us@
                AND (SELECT count(*) = 1 AND bool_and(lease IS NULL) FROM ticket WHERE resource = where_id)
                AND NOT EXISTS (SELECT FROM notice WHERE resource = where_id AND lease = l.id OFFSET 0)
                AND NOT EXISTS (SELECT FROM waiter AS w WHERE w.resource = where_id AND w.lease <> l.id AND (
                    (-w.named, -w.priority::bigint, w.arrival) < (-p.named, -p.priority::bigint, p.arrival)
                    OR (SELECT ended_at IS NULL AND expires_at > least(vouched_for, now_us)
                        FROM lease WHERE id = w.lease) IS NOT TRUE) OFFSET 0);
        IF FOUND OR (who IS NULL AND where_id IS NULL) THEN
            its_token := greatest(its_token, now_us);
            WITH asked AS (
                UPDATE newest SET claimed = number WHERE lease = lease_id AND resource = where_id
            ), waited AS (
                DELETE FROM waiter WHERE resource = where_id AND lease = lease_id
            ), whole AS (
                UPDATE resource SET term = its_term, token = its_token WHERE id = where_id
            ), taken AS (
                UPDATE ticket SET since = now_us, lease = lease_id, term = its_term, token = its_token
                    WHERE resource = where_id AND ticket = 0 RETURNING ticket
            )
            INSERT INTO history (at, resource, worker, ticket, term, token, what)
                SELECT now_us, where_id, called, ticket, its_term, its_token, 0 FROM taken RETURNING id INTO entry;
            numbers := ARRAY[0, 0, its_term, its_token];
            done := CASE WHEN entry % 64 = 0 THEN prune() END;
            verdict := 3;
            shown_us := shown();
            RETURN;
        END IF;
    END IF;
    SELECT * INTO STRICT verdict, now_us, shown_us, longest_ns, incarnation, numbers, names FROM
        claim_at_length(who, number, vouched_for, heard, patience, wanted, tickets, priorities, waits);
END $$;

-- What `release` does where it is not what is usual.
CREATE FUNCTION @schema@.release_at_length(
    who bytea, number bigint, vouched_for bigint, heard bigint, patience integer, left_ones text[], how integer[],
    waits boolean,
    @answer@
) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    c @schema@.caller := stand(who, number, vouched_for, heard, patience, left_ones, 2 = ANY (how), waits);
    quarantine bigint := c.quarantine_from;
    r @schema@.resource;
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

-- As of this request the lease holds and wants nothing of these; `how`: 0 released, 1 failed, 2 stepped down, which
-- queues it again in the same step. numbers: four for each: 0 ticket term token or 1 ahead look_again why where it
-- is queued again, 2 0 0 0 where the release is stale, 3 0 0 0 where nothing is held or wanted any more, 4 0 0 0 where
-- another transaction holds it and this one does not wait.
-- Where it wakes somebody that one is told before the disk has it (verdict 9), and the caller has to call `flush` before it
-- relies on anything: the next grant waits for the disk, and so for all that was written before it.
-- First as it mostly is: one resource with one seat, and nothing standing. See `claim`.
CREATE FUNCTION @schema@.release(
    who bytea, number bigint, vouched_for bigint, heard bigint, patience integer, left_ones text[], how integer[],
    waits boolean,
    @answer@
) @changes@ AS $$
#variable_conflict use_column
DECLARE
    done boolean := @ready@;
    where_id bigint;
    lease_id bigint;
    called text;
    told boolean;
    entry bigint;
BEGIN
    IF waits AND how IN ('{0}', '{1}') AND cardinality(left_ones) < 2 THEN
        SELECT r.id INTO where_id FROM resource AS r WHERE r.name = left_ones[1] AND r.tickets = 1 FOR NO KEY UPDATE;
        now_us := shown();
        SELECT l.id, l.label, m.longest_ns, m.system || '-' || m.life INTO lease_id, called, longest_ns, incarnation
            FROM meta AS m, LATERAL (SELECT id, label FROM lease
                    WHERE bearer = who AND ended_at IS NULL AND expires_at > now_us AND renewed <= number OFFSET 0) AS l,
                LATERAL (SELECT FROM newest
                    WHERE lease = l.id AND resource = where_id AND claimed < number AND released < number OFFSET 0) AS n
            WHERE m.one AND m.life = life(m.tableoid) AND m.longest_ns >= heard AND now_us BETWEEN 1 AND @last_us@
                AND (SELECT count(*) = 1 AND bool_and(lease IS NOT DISTINCT FROM l.id) FROM ticket WHERE resource = where_id)
                AND NOT EXISTS (SELECT FROM notice WHERE resource = where_id AND lease = l.id OFFSET 0)
                AND NOT EXISTS (SELECT FROM waiter WHERE resource = where_id AND lease = l.id OFFSET 0);
        IF FOUND OR (who IS NULL AND where_id IS NULL) THEN
            WITH asked AS (
                UPDATE newest SET released = number WHERE lease = lease_id AND resource = where_id
            ), seat AS (
                UPDATE ticket SET lease = NULL, since = now_us WHERE resource = where_id RETURNING ticket, term, token
            )
            INSERT INTO history (at, resource, worker, ticket, term, token, what)
                SELECT now_us, where_id, called, ticket, term, token, how[1] + 1 FROM seat RETURNING id INTO entry;
            -- As `wake` does: the first may take the ticket now, the second is to look when it has not.
            SELECT bool_or(pg_notify('tenure_' || left(encode(sha256(bearer), 'hex'), 32),
                    CASE place WHEN 1 THEN 0 ELSE step(ttl_ns / 1000) END || ' ' || left_ones[1]) IS NULL) IS NOT NULL
                INTO STRICT told FROM (
                    SELECT l.bearer, l.ttl_ns, row_number() OVER (ORDER BY w.named DESC, w.priority DESC, w.arrival) AS place
                    FROM waiter AS w, LATERAL (SELECT bearer, ttl_ns FROM lease WHERE id = w.lease
                        AND ended_at IS NULL AND expires_at > least(vouched_for, now_us) OFFSET 0) AS l
                    WHERE w.resource = where_id ORDER BY place LIMIT 2
                ) AS first;
            numbers := '{3, 0, 0, 0}';
            done := CASE WHEN entry % 64 = 0 THEN prune() END;
            verdict := CASE WHEN told THEN
                CASE WHEN set_config('synchronous_commit', 'off', true) IS NOT NULL THEN 9 END ELSE 4 END;
            shown_us := shown();
            RETURN;
        END IF;
    END IF;
    SELECT * INTO STRICT verdict, now_us, shown_us, longest_ns, incarnation, numbers, names FROM
        release_at_length(who, number, vouched_for, heard, patience, left_ones, how, waits);
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
