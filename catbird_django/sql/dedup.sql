-- Keys: one live run per concurrency key, one effective run per idempotency key.
--
-- Two unique partial indexes decide. Whoever comes second waits for the first one's transaction, then gets the id of its
-- run; never NULL, and never a second run. The index is asked and the winner is read in separate statements: within one,
-- the snapshot is older than the commit that was waited for, and about half of the callers that race would see nobody.
--
-- Locks: keys, in sort order. Two transactions that run the same keys in opposite order can still deadlock.

-- Queue runs with keys, or none, as cb_run_tasks says, for a task whose id and queue are known. p_statuses and p_errors are
-- what its condition has decided, one per input (NULL: it has none).
CREATE OR REPLACE FUNCTION _cb_run_keyed_tasks(
    p_task_id bigint,
    p_inputs jsonb[],
    p_queue text,
    p_priority integer,
    p_headers jsonb,
    p_run_at timestamptz,
    p_expires_at timestamptz,
    p_statuses text[],
    p_errors jsonb[],
    p_concurrency_keys text[],
    p_idempotency_keys text[],
    p_origin_id bigint,
    p_role text
)
RETURNS TABLE (run_id bigint, verdict text, queue text)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_count integer := pg_catalog.cardinality(p_inputs);
    -- The answers so far, one element each: for which input, what.
    v_places integer[] := ARRAY[]::integer[];
    v_answered bigint[] := ARRAY[]::bigint[];
    v_verdicts text[] := ARRAY[]::text[];
    v_queues text[] := ARRAY[]::text[];
    v_ids bigint[];
    -- What a statement has found.
    v_found integer;
    v_found_ids bigint[];
    v_found_places integer[];
    v_found_queues text[];
    v_found_verdicts text[];
BEGIN
    FOR v_round IN 1..5 LOOP
        -- Ids are drawn before the insert, because an INSERT cannot return which of its inputs became which row.
        v_ids := ARRAY(
            SELECT nextval(pg_get_serial_sequence('cb_task_runs', 'id')) FROM pg_catalog.generate_series(1, v_count)
        );
        WITH given AS (
            SELECT place, v_ids[place] AS id, p_inputs[place] AS input,
                   coalesce(p_statuses[place], 'queued') AS status, p_errors[place] AS error,
                   p_concurrency_keys[place] AS concurrency_key, p_idempotency_keys[place] AS idempotency_key
            FROM pg_catalog.generate_series(1, v_count) AS place
            WHERE place <> ALL (v_places)
        ), inserted AS (
            INSERT INTO cb_task_runs AS run
                (id, task_id, queue, status, priority, input, headers, run_at, visible_at, expires_at, concurrency_key,
                 idempotency_key, origin_id, role, error, queued_at, finished_at)
            SELECT given.id, p_task_id, p_queue, given.status, p_priority, given.input, p_headers, p_run_at,
                   CASE WHEN given.status = 'queued' AND p_run_at > _cb_now() THEN p_run_at END, p_expires_at,
                   given.concurrency_key, given.idempotency_key, p_origin_id, p_role, given.error, _cb_now(),
                   CASE WHEN given.status <> 'queued' THEN _cb_now() END
            FROM given
            ORDER BY given.concurrency_key, given.idempotency_key, given.place
            ON CONFLICT DO NOTHING
            RETURNING run.id
        )
        SELECT pg_catalog.array_agg(given.id), pg_catalog.array_agg(given.place), pg_catalog.array_agg(given.status)
        INTO v_found_ids, v_found_places, v_found_verdicts
        FROM inserted
        JOIN given USING (id);
        v_answered := v_answered || v_found_ids;
        v_places := v_places || v_found_places;
        v_found := coalesce(pg_catalog.cardinality(v_found_ids), 0);
        v_verdicts := v_verdicts || v_found_verdicts;
        v_queues := v_queues || pg_catalog.array_fill(p_queue, ARRAY[v_found]);
        EXIT WHEN pg_catalog.cardinality(v_places) = v_count;

        -- A statement of its own: it sees what was committed while the insert waited.
        SELECT pg_catalog.array_agg(winner.id), pg_catalog.array_agg(place), pg_catalog.array_agg(winner.queue)
        INTO v_found_ids, v_found_places, v_found_queues
        FROM pg_catalog.generate_series(1, v_count) AS place
        CROSS JOIN LATERAL (
            SELECT run.id, run.queue
            FROM cb_task_runs AS run
            WHERE run.task_id = p_task_id
              AND (
                  (run.concurrency_key = p_concurrency_keys[place] AND run.status IN ('queued', 'started', 'canceling'))
                  OR (run.idempotency_key = p_idempotency_keys[place]
                      AND run.status IN ('queued', 'started', 'canceling', 'completed', 'skipped'))
              )
            LIMIT 1
        ) AS winner
        WHERE place <> ALL (v_places);
        v_answered := v_answered || v_found_ids;
        v_places := v_places || v_found_places;
        v_found := coalesce(pg_catalog.cardinality(v_found_ids), 0);
        v_verdicts := v_verdicts || pg_catalog.array_fill('duplicate'::text, ARRAY[v_found]);
        v_queues := v_queues || v_found_queues;
        EXIT WHEN pg_catalog.cardinality(v_places) = v_count;
        -- The winner has ended meanwhile and freed its key: try to be the next.
    END LOOP;

    IF pg_catalog.cardinality(v_places) < v_count THEN
        RAISE EXCEPTION 'keys are taken and freed faster than they can be read' USING ERRCODE = '40001';
    END IF;
    RETURN QUERY
    SELECT v_answered[nth], v_verdicts[nth], v_queues[nth]
    FROM pg_catalog.generate_series(1, v_count) AS nth
    ORDER BY v_places[nth];
END;
$$;

-- Refuse keys that cannot be: not one per input, several kinds at once, empty, or too long for an index.
CREATE OR REPLACE FUNCTION _cb_check_keys(
    p_count integer,
    p_concurrency_keys text[],
    p_idempotency_keys text[],
    p_debounce_keys text[]
)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF pg_catalog.num_nonnulls(p_concurrency_keys, p_idempotency_keys, p_debounce_keys) > 1 THEN
        RAISE EXCEPTION 'a run has a concurrency key, an idempotency key or a debounce key, not both' USING ERRCODE = 'CB001';
    END IF;
    IF pg_catalog.cardinality(coalesce(p_concurrency_keys, p_idempotency_keys, p_debounce_keys)) <> p_count THEN
        RAISE EXCEPTION 'keys and inputs must be equally many' USING ERRCODE = 'CB001';
    END IF;
    IF EXISTS (
        SELECT FROM pg_catalog.unnest(coalesce(p_concurrency_keys, p_idempotency_keys, p_debounce_keys)) AS given (key)
        WHERE octet_length(given.key) NOT BETWEEN 1 AND 512
    ) THEN
        RAISE EXCEPTION 'a key has 1 to 512 bytes' USING ERRCODE = 'CB001';
    END IF;
END;
$$;
