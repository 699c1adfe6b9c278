-- What operators and readers ask, and who may ask anything. @schema@ is the namespace, quoted.

-- The version of the tables and functions.
CREATE FUNCTION @schema@.version() RETURNS integer
LANGUAGE plpgsql STABLE @owners@ AS $$
BEGIN
    RETURN (SELECT meta.version FROM meta);
END $$;

-- The ownership under a token: 0 it stands, 1 another owns (numbers: their tokens). Locks the resource.
CREATE FUNCTION @schema@.under(
    resource_name text, its_token bigint, patience integer,
    OUT r @schema@.resource, OUT owner bigint, OUT seat integer, OUT others bigint[]
) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    a record;
BEGIN
    a := arrive(patience, 0);
    SELECT * INTO r FROM resource WHERE name = resource_name AND tickets > 0 FOR NO KEY UPDATE;
    -- One whose lease is marked dead is over.
    SELECT array_agg(t.token ORDER BY t.ticket), max(t.lease) FILTER (WHERE t.token = its_token),
        max(t.ticket) FILTER (WHERE t.token = its_token)
    INTO others, owner, seat
    FROM ticket AS t, LATERAL (SELECT FROM lease WHERE id = t.lease AND ended_at IS NULL OFFSET 0) AS l
    WHERE t.resource = r.id;
END $$;

-- The operator's wish that this ownership be handed over gently; a successor goes to the head. Marks nobody.
-- asked: 0 done, 1 others own (their tokens), 2 nobody of that label waits.
CREATE FUNCTION @schema@.ask(
    resource_name text, its_token bigint, successor text, patience integer,
    OUT asked smallint, OUT tokens bigint[]
) @changes@ AS $$
#variable_conflict use_column
DECLARE
    u record;
    r resource;
    named_one bigint;
    now_us bigint;
    done boolean;
BEGIN
    u := under(resource_name, its_token, patience);
    IF u.owner IS NULL THEN
        asked := 1;
        tokens := u.others;
        RETURN;
    END IF;
    r := u.r;
    IF successor IS NOT NULL THEN
        now_us := clock();
        SELECT w.lease INTO named_one FROM waiter AS w, LATERAL (SELECT FROM lease
                WHERE id = w.lease AND ended_at IS NULL AND expires_at > now_us AND label = successor OFFSET 0) AS l
            WHERE w.resource = r.id
            ORDER BY w.named DESC, w.priority DESC, w.arrival LIMIT 1;
        IF named_one IS NULL THEN
            asked := 2;
            RETURN;
        END IF;
        UPDATE waiter SET named = r.arrivals + 1, arrival = r.arrivals + 1 WHERE resource = r.id AND lease = named_one;
        UPDATE resource SET arrivals = r.arrivals + 1 WHERE id = r.id;
    END IF;
    done := tell(u.owner, r.id, its_token, 1);
    asked := 0;
END $$;

-- Takes the ownership away at once; its worker learns of it with the next renewal, and until then only the token
-- protects. Marks nobody. Answers like `ask`.
CREATE FUNCTION @schema@.evict(
    resource_name text, its_token bigint, patience integer, OUT asked smallint, OUT tokens bigint[]
) @changes@ AS $$
#variable_conflict use_column
DECLARE
    u record;
    r resource;
    was record;
    now_us bigint;
    done boolean;
BEGIN
    u := under(resource_name, its_token, patience);
    IF u.owner IS NULL THEN
        asked := 1;
        tokens := u.others;
        RETURN;
    END IF;
    r := u.r;
    now_us := clock();
    done := tell(u.owner, r.id, its_token, 2);
    UPDATE ticket SET lease = NULL, since = now_us WHERE resource = r.id AND ticket = u.seat
        RETURNING term, token INTO was;
    done := note(now_us, r.id, (SELECT label FROM lease WHERE id = u.owner), u.seat, was.term, was.token, 6);
    IF u.seat >= r.tickets THEN
        done := cut_back(r.id, r.tickets);
    END IF;
    done := wake(r.id, r.name, r.tickets, NULL, now_us, NULL);
    asked := 0;
END $$;

-- Owners and waiters of one resource, or of all, by name: `kind` 0 the resource, 1 an owner, 2 a waiter. Those
-- whose lease is over are left out. One snapshot; no lease ids. Planned for what is asked: of one resource nothing
-- but its own rows is read.
CREATE FUNCTION @schema@.look(resource_name text) RETURNS TABLE (
    kind integer, name text, tickets integer, worker text, metadata text, ticket integer, term bigint, token bigint,
    owned_us bigint, left_us bigint, withheld_us bigint
) @reads@ AS $$
#variable_conflict use_column
DECLARE
    now_us bigint := clock();
    withheld bigint;
BEGIN
    -- A life that nobody has noticed yet begins with a quarantine.
    SELECT nullif(greatest(least(
            CASE WHEN m.life = life(m.tableoid) THEN m.quarantine_from - now_us ELSE 0 END, 0) + m.longest_ns / 1000, 0), 0)
        INTO withheld FROM meta AS m WHERE m.life <> life(m.tableoid) OR m.quarantine_from IS NOT NULL;
    RETURN QUERY SELECT v.kind, v.name, v.tickets, v.label, v.metadata, v.ticket, v.term, v.token,
        greatest(now_us - v.since, 0), v.expires_at - now_us, withheld
    FROM (
        SELECT 0 AS kind, r.name, r.tickets, NULL::text AS label, NULL::text AS metadata, 0 AS ticket,
            0::bigint AS term, 0::bigint AS token, now_us AS since, now_us AS expires_at, 0::bigint AS place
        FROM resource AS r WHERE r.tickets > 0 AND (resource_name IS NULL OR r.name = resource_name)
        UNION ALL
        SELECT 1, r.name, r.tickets, l.label, l.metadata, t.ticket, t.term, t.token, t.since, l.expires_at, t.ticket
        FROM ticket AS t JOIN resource AS r ON r.id = t.resource JOIN lease AS l ON l.id = t.lease
        WHERE (resource_name IS NULL OR r.name = resource_name) AND l.ended_at IS NULL AND l.expires_at > now_us
        UNION ALL
        SELECT 2, r.name, r.tickets, l.label, l.metadata, 0, 0, 0, now_us, l.expires_at,
            row_number() OVER (ORDER BY w.named DESC, w.priority DESC, w.arrival)
        FROM waiter AS w JOIN resource AS r ON r.id = w.resource JOIN lease AS l ON l.id = w.lease
        WHERE (resource_name IS NULL OR r.name = resource_name) AND l.ended_at IS NULL AND l.expires_at > now_us
    ) AS v
    ORDER BY v.name, v.kind, v.place;
END $$;

-- What happened, oldest first, of one resource or of all, with the endings that nobody has come across yet at
-- their place in time.
CREATE FUNCTION @schema@.past(resource_name text) RETURNS TABLE (
    ago_us bigint, name text, worker text, ticket integer, term bigint, token bigint, what integer
) @reads@ AS $$
#variable_conflict use_column
DECLARE
    now_us bigint := clock();
BEGIN
    RETURN QUERY SELECT greatest(now_us - p.at, 0), p.name, p.label, p.ticket, p.term, p.token, p.what
    FROM (
        (SELECT h.at, r.name, h.worker AS label, h.ticket, h.term, h.token, h.what::integer AS what, h.id AS number
        FROM history AS h JOIN resource AS r ON r.id = h.resource
        WHERE resource_name IS NULL OR r.name = resource_name
        ORDER BY h.id DESC LIMIT (SELECT history_most FROM meta))
        UNION ALL
        SELECT greatest(coalesce(l.ended_at, l.expires_at), t.since), r.name, l.label, t.ticket, t.term, t.token,
            CASE l.ended_why WHEN 0 THEN 1 WHEN 2 THEN 5 ELSE 4 END, 9223372036854775807
        FROM ticket AS t JOIN resource AS r ON r.id = t.resource JOIN lease AS l ON l.id = t.lease
        WHERE (resource_name IS NULL OR r.name = resource_name)
            AND (l.ended_at IS NOT NULL OR l.expires_at <= now_us)
    ) AS p
    ORDER BY p.at, p.number, p.name, p.ticket;
END $$;

-- What of the server's configuration bears on the promises.
CREATE FUNCTION @schema@.setup(
    OUT fsync text, OUT full_page_writes text, OUT synchronous_commit text, OUT standby_names text, OUT standbys bigint
) LANGUAGE plpgsql STABLE @owners@ AS $$
BEGIN
    fsync := current_setting('fsync');
    full_page_writes := current_setting('full_page_writes');
    synchronous_commit := current_setting('synchronous_commit');
    standby_names := current_setting('synchronous_standby_names');
    -- Who may not see more than that there are some sees no names; a backup is none of them.
    standbys := (SELECT count(*) FROM pg_stat_replication WHERE application_name IS DISTINCT FROM 'pg_basebackup');
END $$;

-- Nobody may do anything but whom the owner allows: GRANT USAGE ON SCHEMA, and EXECUTE on what a worker calls.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA @schema@ FROM PUBLIC;

INSERT INTO @schema@.meta (version, system, life, quarantine_from)
    SELECT @version@, system_identifier, @schema@.life('@schema@.meta'::regclass::oid), @schema@.clock()
    FROM pg_control_system();
