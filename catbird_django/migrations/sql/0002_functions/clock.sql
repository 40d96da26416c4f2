-- The clock. Leases, visibility and schedules are decided by this function alone (R7): nothing compares the clock of
-- a client with a row. Tests replace it to turn the time.

-- The time of the current statement. It has no SET clause, because that would keep the planner from inlining it and
-- claims would lose their index; so it spells out pg_catalog.
CREATE OR REPLACE FUNCTION _cb_now()
RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT pg_catalog.statement_timestamp()
$$;
