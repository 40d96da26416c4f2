-- Housekeeping: what the elected worker looks after beside the tick, without hurry: workers that are gone, dead rows, old
-- transactions. Nothing depends on it; in particular claims of a dead worker are taken back by their lease, not by its row.
--
-- Locks: workers by id; what is locked is skipped.

-- Remove the rows of workers that were not heard of for p_worker_ttl, and of those that stopped longer than p_keep_stopped
-- ago. Says which of the former were removed, how many transactions are older than a minute, and how old the oldest is, as
-- far as this role may see them.
CREATE OR REPLACE FUNCTION cb_keep_house(p_worker_ttl interval, p_keep_stopped interval)
RETURNS TABLE (lost_workers text[], old_transactions integer, oldest_transaction interval)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    WITH gone AS (
        DELETE FROM cb_workers AS worker
        WHERE worker.id = ANY (ARRAY(
            SELECT silent.id
            FROM cb_workers AS silent
            WHERE (silent.stopped_at IS NULL AND silent.seen_at < _cb_now() - p_worker_ttl)
               OR silent.stopped_at < _cb_now() - p_keep_stopped
            ORDER BY silent.id
            FOR UPDATE SKIP LOCKED
        ))
        RETURNING worker.host, worker.pid, worker.stopped_at
    )
    SELECT coalesce(array_agg(format('%s:%s', gone.host, gone.pid)) FILTER (WHERE gone.stopped_at IS NULL), '{}')
    INTO lost_workers
    FROM gone;

    SELECT count(*)::integer, max(_cb_now() - old.since) INTO old_transactions, oldest_transaction
    FROM _cb_old_transactions() AS old;
    RETURN NEXT;
END;
$$;

-- How many dead rows there are among runs of tasks, step runs and readiness, as far as the statistics know (a second behind,
-- at most, under load), and whether this role may VACUUM them.
CREATE OR REPLACE FUNCTION cb_dead_rows()
RETURNS TABLE (dead_rows bigint, may_vacuum boolean)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT sum(pg_stat_get_dead_tuples(relation.oid))::bigint, bool_and(_cb_may_vacuum(relation.oid, relation.relowner))
    FROM pg_class AS relation
    WHERE relation.oid IN ('cb_task_runs'::regclass, 'cb_step_runs'::regclass, 'cb_step_readiness'::regclass, 'cb_items'::regclass)
$$;

-- Whether this role may VACUUM a table: it owns it, or has MAINTAIN on it (from PostgreSQL 17 on).
CREATE OR REPLACE FUNCTION _cb_may_vacuum(p_table oid, p_owner oid)
RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT pg_has_role(p_owner, 'USAGE')
        OR CASE
            WHEN current_setting('server_version_num')::integer >= 170000 THEN has_table_privilege(p_table, 'MAINTAIN')
            ELSE false
        END
$$;

-- Transactions that are open for more than a minute: they keep dead rows from being removed.
CREATE OR REPLACE FUNCTION _cb_old_transactions()
RETURNS TABLE (subject text, since timestamptz, application_name text)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT format('session %s', session.pid), session.xact_start, session.application_name
    FROM pg_stat_activity AS session
    WHERE session.xact_start < _cb_now() - interval '1 minute' AND session.backend_type = 'client backend'
      AND session.pid <> pg_backend_pid()
    UNION ALL
    SELECT format('prepared transaction %s', prepared.gid), prepared.prepared, ''
    FROM pg_prepared_xacts AS prepared
    WHERE prepared.prepared < _cb_now() - interval '1 minute'
$$;
