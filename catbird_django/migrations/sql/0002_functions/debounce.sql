-- Debounce: one queued run per key; who comes while it waits replaces what it will be run with (T13).
--
-- A unique partial index over queued runs decides. A claim takes the key off the run, so that what is asked afterwards is a
-- run of its own. The upsert waits for whoever has the row, and looks again when it was claimed meanwhile: it inserts or
-- updates, and answers in either case.
--
-- Locks: keys, in sort order. Two transactions that run the same keys in opposite order can still deadlock.

-- Queue runs with debounce keys, as cb_run_tasks says, for a task whose id and queue are known. p_statuses and p_errors are
-- what its condition has decided, one per input (NULL: it has none); one that is not to be queued leaves the queued run
-- alone. Of inputs with the same key the last counts.
CREATE OR REPLACE FUNCTION _cb_run_debounced_tasks(
    p_task_id bigint,
    p_inputs jsonb[],
    p_queue text,
    p_priority integer,
    p_headers jsonb,
    p_run_at timestamptz,
    p_expires_at timestamptz,
    p_statuses text[],
    p_errors jsonb[],
    p_debounce_keys text[]
)
RETURNS TABLE (run_id bigint, verdict text, queue text)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_count integer := pg_catalog.cardinality(p_inputs);
    v_visible_at timestamptz := CASE WHEN p_run_at > _cb_now() THEN p_run_at END;
    v_ids bigint[];
BEGIN
    -- Drawn before the insert, because an INSERT cannot return which of its inputs became which row, or none.
    v_ids := ARRAY(
        SELECT nextval(pg_get_serial_sequence('cb_task_runs', 'id')) FROM pg_catalog.generate_series(1, v_count)
    );
    RETURN QUERY
    WITH given AS (
        SELECT place, v_ids[place] AS id, p_inputs[place] AS input, decided.status, p_errors[place] AS error,
               CASE WHEN decided.status = 'queued' THEN p_debounce_keys[place] END AS debounce_key
        FROM pg_catalog.generate_series(1, v_count) AS place
        CROSS JOIN LATERAL (SELECT coalesce(p_statuses[place], 'queued') AS status) AS decided
    ), counting AS (
        SELECT * FROM given WHERE given.debounce_key IS NULL
        UNION ALL
        (
            SELECT DISTINCT ON (given.debounce_key) *
            FROM given
            WHERE given.debounce_key IS NOT NULL
            ORDER BY given.debounce_key, given.place DESC
        )
    ), upserted AS (
        INSERT INTO cb_task_runs AS run
            (id, task_id, queue, status, priority, input, headers, run_at, visible_at, expires_at, debounce_key, error,
             queued_at, finished_at)
        SELECT counting.id, p_task_id, p_queue, counting.status, p_priority, counting.input, p_headers, p_run_at,
               CASE WHEN counting.status = 'queued' THEN v_visible_at END, p_expires_at, counting.debounce_key,
               counting.error, _cb_now(), CASE WHEN counting.status <> 'queued' THEN _cb_now() END
        FROM counting
        ORDER BY counting.debounce_key, counting.place
        ON CONFLICT (task_id, debounce_key) WHERE debounce_key IS NOT NULL AND status = 'queued' DO UPDATE
        SET queue = excluded.queue,
            priority = excluded.priority,
            input = excluded.input,
            headers = excluded.headers,
            run_at = excluded.run_at,
            visible_at = excluded.visible_at,
            expires_at = excluded.expires_at
        RETURNING run.id, run.debounce_key
    )
    SELECT upserted.id,
           CASE WHEN given.status <> 'queued' THEN given.status WHEN upserted.id = given.id THEN 'queued' ELSE 'replaced' END,
           p_queue
    FROM given
    JOIN upserted ON upserted.debounce_key = given.debounce_key OR upserted.id = given.id
    ORDER BY given.place;
END;
$$;
