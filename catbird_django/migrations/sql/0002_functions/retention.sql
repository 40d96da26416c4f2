-- Retention: finished runs are removed when they are old enough; live ones never.
--
-- What is written down beside a run (events, log lines, tags) goes in the same transaction. A run that others were made
-- from (a retry, what runs on failure) is removed like any other: they keep its number, which then leads nowhere. A
-- removed run no longer stands for its idempotency key.
--
-- Locks: task runs by id; what is locked is skipped, and found by the next pass. What belongs to a run is locked by nobody
-- who does not hold the run.

-- Look at the next p_limit runs after p_after_id, in order of id, and remove those that ended longer than p_age ago with
-- one of p_statuses. Returns how many were removed, and the id to go on from (NULL: there are no more). A live status is
-- refused. Small passes keep transactions short, and need no index of their own.
CREATE OR REPLACE FUNCTION cb_prune_tasks(p_statuses text[], p_age interval, p_after_id bigint, p_limit integer)
RETURNS TABLE (removed_count integer, last_id bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_old bigint[];
BEGIN
    IF NOT p_statuses <@ ARRAY['completed', 'failed', 'skipped', 'canceled', 'expired'] THEN
        RAISE EXCEPTION 'p_statuses holds a status that is not final: %', p_statuses USING ERRCODE = 'CB001';
    END IF;
    IF p_age IS NULL OR p_age < interval '0' THEN
        RAISE EXCEPTION 'p_age must not be negative' USING ERRCODE = 'CB001';
    END IF;

    SELECT array_agg(seen.id) FILTER (WHERE seen.status = ANY (p_statuses) AND seen.finished_at <= _cb_now() - p_age),
           max(seen.id)
    INTO v_old, last_id
    FROM (
        SELECT run.id, run.status, run.finished_at
        FROM cb_task_runs AS run
        WHERE run.id > p_after_id
        ORDER BY run.id
        LIMIT p_limit
    ) AS seen;

    removed_count := _cb_remove_tasks(v_old);
    RETURN NEXT;
END;
$$;

-- Look at the next p_limit runs after p_after_id, in order of id, and remove those that ended longer ago than their task's
-- retention, or than p_retention where it has none (NULL: those are kept for ever). Returns how many were removed, and the
-- id to go on from (NULL: the pass is over). Runs are queued in about the order of their ids, so a pass is over where they
-- become too young for the shortest retention: the new ones, mostly all there are, are not even looked at.
CREATE OR REPLACE FUNCTION cb_apply_retention(p_retention interval, p_after_id bigint, p_limit integer)
RETURNS TABLE (removed_count integer, last_id bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_now timestamptz := _cb_now();
    v_shortest interval := least(p_retention, (SELECT min(task.retention) FROM cb_tasks AS task));
    v_old bigint[];
    v_seen integer;
    v_newest timestamptz;
BEGIN
    IF v_shortest IS NULL THEN
        RETURN QUERY SELECT 0, NULL::bigint;
        RETURN;
    END IF;

    SELECT array_agg(seen.id) FILTER (
               WHERE seen.status IN ('completed', 'failed', 'skipped', 'canceled', 'expired')
                 AND seen.finished_at <= v_now - coalesce(task.retention, p_retention)
                 -- At least: its caller may still wait for it, and the last words of its handler be on their way.
                 AND seen.finished_at <= v_now - interval '1 minute'
           ),
           count(*), max(seen.id), max(seen.queued_at)
    INTO v_old, v_seen, last_id, v_newest
    FROM (
        SELECT run.id, run.task_id, run.status, run.queued_at, run.finished_at
        FROM cb_task_runs AS run
        WHERE run.id > p_after_id
        ORDER BY run.id
        LIMIT p_limit
    ) AS seen
    LEFT JOIN cb_tasks AS task ON task.id = seen.task_id;

    removed_count := _cb_remove_tasks(v_old);
    IF v_seen < p_limit OR v_newest > v_now - v_shortest THEN
        last_id := NULL;
    END IF;
    RETURN NEXT;
END;
$$;

-- Remove these runs, with all that is written down beside them, but for those that are live or locked. Returns how many.
CREATE OR REPLACE FUNCTION _cb_remove_tasks(p_run_ids bigint[])
RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_ids bigint[] := ARRAY(
        SELECT run.id
        FROM cb_task_runs AS run
        WHERE run.id = ANY (p_run_ids) AND run.status IN ('completed', 'failed', 'skipped', 'canceled', 'expired')
        ORDER BY run.id
        FOR UPDATE SKIP LOCKED
    );
BEGIN
    DELETE FROM cb_events WHERE run_kind = 'task' AND run_id = ANY (v_ids);
    DELETE FROM cb_run_logs WHERE run_kind = 'task' AND run_id = ANY (v_ids);
    DELETE FROM cb_run_tags WHERE run_kind = 'task' AND run_id = ANY (v_ids);
    DELETE FROM cb_task_runs WHERE id = ANY (v_ids);
    RETURN cardinality(v_ids);
END;
$$;
