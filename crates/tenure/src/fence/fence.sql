-- tenure_fence(resource, ticket, token): to be called first in a transaction that writes under an ownership. Lets it go
-- on, and no transaction of an earlier owner of the same ticket after it; raises TN409 if a later owner was here.
--
-- Transactions of one owner share the row, and do not wait for each other. The first of a later owner waits for those
-- that have begun: so everything that an earlier owner writes is there before anything of the next one, or never.
CREATE TABLE IF NOT EXISTS tenure_fences (
    resource text NOT NULL,
    ticket integer NOT NULL,
    token bigint NOT NULL,
    PRIMARY KEY (resource, ticket)
);

CREATE OR REPLACE FUNCTION tenure_fence(of_resource text, of_ticket integer, sent bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    newest bigint;
BEGIN
    IF of_resource IS NULL OR of_ticket IS NULL OR sent IS NULL OR sent <= 0 THEN
        RAISE EXCEPTION 'a fence takes a resource, a ticket and a token above zero' USING ERRCODE = '22023';
    END IF;
    -- Without a lock: two that shared the row and then both wanted to write it would wait for each other for ever.
    SELECT token INTO newest FROM tenure_fences WHERE resource = of_resource AND ticket = of_ticket;
    IF newest IS NULL OR newest < sent THEN
        INSERT INTO tenure_fences AS mark VALUES (of_resource, of_ticket, sent)
        ON CONFLICT (resource, ticket) DO UPDATE SET token = greatest(mark.token, excluded.token)
        RETURNING mark.token INTO newest;
    ELSIF newest = sent THEN
        SELECT token INTO newest FROM tenure_fences WHERE resource = of_resource AND ticket = of_ticket FOR SHARE;
    END IF;
    IF newest > sent THEN
        RAISE EXCEPTION 'token % of ticket % of "%" is stale', sent, of_ticket, of_resource
            USING ERRCODE = 'TN409', DETAIL = newest;
    END IF;
END
$$;
