-- Jobs: who may claim an occurrence, and what became of it; and messages to all workers. @schema@ is the namespace,
-- quoted.
--
-- What makes a claim good for once is `through`: it only rises, under the lock of the resource, in the same step that
-- names the one who runs it. All of these mark nobody dead.

-- Locks the resource, and says under which ticket this lease holds it under exactly this token, if it lives by the
-- server's clock; else there is no ticket.
CREATE FUNCTION @schema@.holder(
    who bytea, resource_name text, its_token bigint, patience integer,
    OUT where_id bigint, OUT now_us bigint, OUT seat integer, OUT called text
) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    done boolean := @ready@;
BEGIN
    SELECT id INTO where_id FROM resource WHERE name = resource_name FOR NO KEY UPDATE;
    now_us := clock();
    SELECT t.ticket, l.label INTO seat, called
        FROM ticket AS t, LATERAL (SELECT label FROM lease
            WHERE id = t.lease AND bearer = who AND ended_at IS NULL AND expires_at > now_us OFFSET 0) AS l
        WHERE t.resource = where_id AND t.token = its_token;
END $$;

-- What a step of a job is answered with: what was said (0 done, 1 not the owner, 2 no such job, 3 too early, 4 not this
-- holder's to run or finish), and the job with the latest of its runs.
CREATE FUNCTION @schema@.told(where_id bigint, what integer, plan_before text) RETURNS TABLE (@step@)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT what, j.through, plan_before, r.*
        FROM (SELECT) AS one LEFT JOIN (SELECT through FROM job WHERE resource = where_id) AS j ON true
        LEFT JOIN (SELECT @run@ FROM run WHERE resource = where_id ORDER BY occurrence DESC LIMIT 1) AS r ON true;
END $$;

-- A run that is under way, under another token than this, was left in the middle.
CREATE FUNCTION @schema@.interrupt(where_id bigint, unless_under bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    UPDATE run SET state = 3 WHERE resource = where_id AND state = 0 AND token IS DISTINCT FROM unless_under;
    IF FOUND THEN
        UPDATE job SET interrupted = interrupted + 1 WHERE resource = where_id;
    END IF;
    RETURN FOUND;
END $$;

-- The owner takes the job up. Makes it if there is none: nothing up to `since` counts as missed then. Repeating it changes
-- nothing more.
CREATE FUNCTION @schema@.attend(
    who bytea, resource_name text, its_token bigint, patience integer, its_plan text, since bigint
) RETURNS TABLE (@step@) @changes@ AS $$
#variable_conflict use_column
DECLARE
    h record := holder(who, resource_name, its_token, patience);
    plan_before text;
    done boolean;
BEGIN
    IF h.seat IS NULL THEN
        RETURN QUERY SELECT * FROM told(NULL, 1, NULL);
        RETURN;
    END IF;
    done := interrupt(h.where_id, its_token);
    SELECT plan INTO plan_before FROM job WHERE resource = h.where_id;
    IF NOT FOUND THEN
        INSERT INTO job (resource, plan, through) VALUES (h.where_id, its_plan, least(since, head_start(h.now_us)));
    ELSIF plan_before <> its_plan THEN
        -- What the new plan would have had before was never to be.
        UPDATE job SET plan = its_plan, through = greatest(through, least(since, head_start(h.now_us)))
            WHERE resource = h.where_id;
    END IF;
    RETURN QUERY SELECT * FROM told(h.where_id, 0, nullif(plan_before, its_plan));
END $$;

-- The last occurrence that may be begun now: a worker whose clock runs ahead must not use up the future.
CREATE FUNCTION @schema@.head_start(now_us bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT least(now_us / 1000 + 60000, 7258118400000)
$$;

-- Claims an occurrence, to be run now. `again`: the latest may be run once more if it failed or was interrupted; that
-- keeps its first token. Repeating it, because a reply was lost, gives the same run again.
CREATE FUNCTION @schema@.begin(
    who bytea, resource_name text, its_token bigint, patience integer, number bigint, left_out bigint, passed_over bigint,
    again boolean
) RETURNS TABLE (@step@) @changes@ AS $$
#variable_conflict use_column
DECLARE
    h record := holder(who, resource_name, its_token, patience);
    until bigint;
    last record;
    what integer := 0;
    done boolean;
BEGIN
    SELECT through INTO until FROM job WHERE resource = h.where_id;
    IF h.seat IS NULL OR until IS NULL OR number > head_start(h.now_us) THEN
        what := CASE WHEN h.seat IS NULL THEN 1 WHEN until IS NULL THEN 2 ELSE 3 END;
        RETURN QUERY SELECT * FROM told(NULL, what, NULL);
        RETURN;
    END IF;
    SELECT occurrence, token, state INTO last FROM run WHERE resource = h.where_id ORDER BY occurrence DESC LIMIT 1;
    IF number > until THEN
        -- Whoever goes on to the next without a word about the last one has left it in the middle.
        done := interrupt(h.where_id, NULL);
        UPDATE job SET through = number, missed = missed + left_out, skipped = skipped + passed_over
            WHERE resource = h.where_id;
        INSERT INTO run (resource, occurrence, attempt, token, key_token, worker, began_at, state, missed, skipped)
            VALUES (h.where_id, number, 1, its_token, its_token, h.called, h.now_us, 0, left_out, passed_over);
        DELETE FROM run WHERE resource = h.where_id AND occurrence <= (
            SELECT occurrence FROM run WHERE resource = h.where_id ORDER BY occurrence DESC OFFSET 50 LIMIT 1);
    ELSIF last.occurrence IS DISTINCT FROM number THEN
        what := 4;
    ELSIF last.state = 0 AND last.token = its_token THEN
        -- Its reply was lost.
        what := 0;
    -- Not under the token under which it was begun: that would be late, for it has ended since.
    ELSIF again AND last.state <> 1 AND last.token <> its_token THEN
        done := interrupt(h.where_id, NULL);
        UPDATE run SET attempt = least(attempt + 1, 4294967295), token = its_token, worker = h.called,
            began_at = h.now_us, took_us = NULL, state = 0, note = '' WHERE resource = h.where_id AND occurrence = number;
    ELSE
        what := 4;
    END IF;
    RETURN QUERY SELECT * FROM told(h.where_id, what, NULL);
END $$;

-- How the run ended: 1 it came to its end, 2 it failed. True also when the lease does not live any more.
CREATE FUNCTION @schema@.finish(
    resource_name text, its_token bigint, patience integer, number bigint, outcome integer, said_last text
) RETURNS TABLE (@step@) @changes@ AS $$
#variable_conflict use_column
DECLARE
    done boolean := @ready@;
    where_id bigint;
    last record;
    what integer := 4;
BEGIN
    SELECT id INTO where_id FROM resource WHERE name = resource_name FOR NO KEY UPDATE;
    IF NOT EXISTS (SELECT FROM job WHERE resource = where_id) THEN
        RETURN QUERY SELECT * FROM told(NULL, 2, NULL);
        RETURN;
    END IF;
    SELECT occurrence, token, state INTO last FROM run WHERE resource = where_id ORDER BY occurrence DESC LIMIT 1;
    IF last.occurrence = number AND last.token = its_token AND last.state IN (0, outcome) THEN
        what := 0;
        IF last.state = 0 THEN
            UPDATE run SET state = outcome, took_us = greatest(clock() - began_at, 0), note = said_last
                WHERE resource = where_id AND occurrence = number;
            UPDATE job SET ran = ran + (outcome = 1)::integer, failed = failed + (outcome = 2)::integer
                WHERE resource = where_id;
        END IF;
    END IF;
    RETURN QUERY SELECT * FROM told(where_id, what, NULL);
END $$;

-- One job with its runs, oldest first, or every job with the latest, by name. One snapshot.
CREATE FUNCTION @schema@.jobs(resource_name text) RETURNS TABLE (
    name text, plan text, through bigint, ran bigint, failed bigint, interrupted bigint, missed_ever bigint,
    skipped_ever bigint, @record@
) @reads@ AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT s.name, j.plan, j.through, j.ran, j.failed, j.interrupted, j.missed, j.skipped, r.*
        FROM job AS j JOIN resource AS s ON s.id = j.resource LEFT JOIN LATERAL (
            SELECT @run@ FROM run WHERE resource = j.resource
            ORDER BY occurrence DESC LIMIT CASE WHEN resource_name IS NULL THEN 1 ELSE 50 END
        ) AS r ON true
        WHERE resource_name IS NULL OR s.name = resource_name
        ORDER BY s.name, r.occurrence;
END $$;

-- Where the messages of a resource go. Whoever can connect may listen and notify, so its name is a secret of those who may
-- call this.
CREATE FUNCTION @schema@.channel(resource_name text) RETURNS text @reads@ AS $$
BEGIN
    RETURN (SELECT 'tenure_' || left(encode(sha256(convert_to(secret || ' ' || resource_name, 'UTF8')), 'hex'), 32) FROM meta);
END $$;

-- Sends to all who listen, if this is the owner; else to nobody.
CREATE FUNCTION @schema@.publish(
    who bytea, resource_name text, its_token bigint, patience integer, bytes bytea
) RETURNS boolean @changes@ AS $$
#variable_conflict use_column
DECLARE
    h record := holder(who, resource_name, its_token, patience);
BEGIN
    IF h.seat IS NULL THEN
        RETURN false;
    END IF;
    PERFORM pg_notify(
        channel(resource_name),
        h.seat || ' ' || its_token || ' ' || translate(encode(bytes, 'base64'), E'\n', '')
    );
    RETURN true;
END $$;
