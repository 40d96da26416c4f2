-- Watching: whether anybody wants to be told that runs have ended.
--
-- Transactions that notify wait for each other when they commit, so workers notify only while somebody watches: a caller
-- that waits for a run, or an open page. Whoever does says so, for a while, and says it again before that is over. A hint
-- that is lost between the two costs one poll, never a run.
--
-- Locks: the lease 'watched'.

-- Say that somebody watches for so long from now. They must look once more afterwards: what ended before was not told.
CREATE OR REPLACE FUNCTION cb_watch(p_duration interval)
RETURNS void
LANGUAGE sql SET search_path FROM CURRENT AS $$
    INSERT INTO cb_leases AS lease (name, held_until)
    VALUES ('watched', _cb_now() + p_duration)
    ON CONFLICT (name) DO UPDATE
    SET held_until = excluded.held_until
    WHERE lease.held_until < excluded.held_until
$$;

-- Whether anybody watches.
CREATE OR REPLACE FUNCTION _cb_is_watched()
RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN EXISTS (SELECT FROM cb_leases AS lease WHERE lease.name = 'watched' AND lease.held_until > _cb_now());
END;
$$;
