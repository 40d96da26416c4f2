-- Retention: finished runs are removed when they are old enough; live ones never.
--
-- Locks: task runs by id; what is locked is skipped, and found by the next pass.

-- Look at the next p_limit runs after p_after_id, in order of id, and remove those that ended longer than p_age ago with
-- one of p_statuses. Returns how many were removed, and the id to go on from (NULL: there are no more). A live status is
-- refused. Small passes keep transactions short, and need no index of their own.
CREATE OR REPLACE FUNCTION cb_prune_tasks(p_statuses text[], p_age interval, p_after_id bigint, p_limit integer)
RETURNS TABLE (removed_count integer, last_id bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    IF NOT p_statuses <@ ARRAY['completed', 'failed', 'skipped', 'canceled', 'expired'] THEN
        RAISE EXCEPTION 'p_statuses holds a status that is not final: %', p_statuses USING ERRCODE = 'CB001';
    END IF;
    IF p_age IS NULL OR p_age < interval '0' THEN
        RAISE EXCEPTION 'p_age must not be negative' USING ERRCODE = 'CB001';
    END IF;

    RETURN QUERY
    WITH looked_at AS (
        SELECT run.id, run.status, run.finished_at
        FROM cb_task_runs AS run
        WHERE run.id > p_after_id
        ORDER BY run.id
        LIMIT p_limit
    ), removed AS (
        DELETE FROM cb_task_runs
        WHERE id = ANY (ARRAY(
            SELECT run.id
            FROM cb_task_runs AS run
            WHERE run.id IN (
                SELECT looked_at.id
                FROM looked_at
                WHERE looked_at.status = ANY (p_statuses) AND looked_at.finished_at <= _cb_now() - p_age
            )
            ORDER BY run.id
            FOR UPDATE SKIP LOCKED
        ))
        RETURNING id
    )
    SELECT (SELECT count(*)::integer FROM removed), (SELECT max(looked_at.id) FROM looked_at);
END;
$$;
