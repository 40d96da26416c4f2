-- Runs that need more than a row: with keys, tags, or a condition on their input.
--
-- cb_run_tasks comes here only for those; what it promises of them is kept by `sql/dedup.sql`, `sql/debounce.sql` and
-- `sql/conditions.sql`.
--
-- Locks: keys, in sort order.

-- Queue runs with keys, tags, a condition or an origin, as cb_run_tasks says, for a task whose id and queue are known.
-- p_notify tells open pages of those that ended at once; with p_all_events being queued is an event, too.
CREATE OR REPLACE FUNCTION _cb_run_special_tasks(
    p_task_id bigint,
    p_inputs jsonb[],
    p_queue text,
    p_priority integer,
    p_headers jsonb,
    p_run_at timestamptz,
    p_expires_at timestamptz,
    p_condition jsonb,
    p_concurrency_keys text[],
    p_idempotency_keys text[],
    p_debounce_keys text[],
    p_tags text[],
    p_origin_id bigint,
    p_role text,
    p_notify boolean,
    p_all_events boolean
)
RETURNS TABLE (run_id bigint, verdict text, queue text)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_statuses text[];
    v_errors jsonb[];
    v_ids bigint[];
    v_verdicts text[];
    v_queues text[];
BEGIN
    PERFORM _cb_check_keys(pg_catalog.cardinality(p_inputs), p_concurrency_keys, p_idempotency_keys, p_debounce_keys);
    PERFORM _cb_check_tags(p_tags);
    SELECT decided.statuses, decided.errors
    INTO v_statuses, v_errors
    FROM _cb_decide_inputs(p_condition, p_inputs) AS decided;

    IF p_debounce_keys IS NULL THEN
        SELECT pg_catalog.array_agg(run.run_id), pg_catalog.array_agg(run.verdict), pg_catalog.array_agg(run.queue)
        INTO v_ids, v_verdicts, v_queues
        FROM _cb_run_keyed_tasks(
            p_task_id, p_inputs, p_queue, p_priority, p_headers, p_run_at, p_expires_at, v_statuses, v_errors,
            p_concurrency_keys, p_idempotency_keys, p_origin_id, p_role
        ) AS run;
    ELSE
        SELECT pg_catalog.array_agg(run.run_id), pg_catalog.array_agg(run.verdict), pg_catalog.array_agg(run.queue)
        INTO v_ids, v_verdicts, v_queues
        FROM _cb_run_debounced_tasks(
            p_task_id, p_inputs, p_queue, p_priority, p_headers, p_run_at, p_expires_at, v_statuses, v_errors,
            p_debounce_keys
        ) AS run;
    END IF;

    IF p_tags IS NOT NULL OR 'replaced' = ANY (v_verdicts) THEN
        PERFORM _cb_tag_tasks(v_ids, v_verdicts, p_tags);
    END IF;
    PERFORM _cb_note_births(v_ids, v_verdicts, v_errors, p_all_events);
    IF 'failed' = ANY (v_verdicts) THEN
        PERFORM _cb_run_on_fail(ARRAY(
            SELECT v_ids[place]
            FROM pg_catalog.generate_series(1, pg_catalog.cardinality(v_ids)) AS place
            WHERE v_verdicts[place] = 'failed'
        ));
    END IF;
    IF p_notify AND v_verdicts && ARRAY['skipped', 'failed'] THEN
        PERFORM _cb_tell_finished_tasks(v_ids);
    END IF;
    RETURN QUERY
    SELECT v_ids[place], v_verdicts[place], v_queues[place]
    FROM pg_catalog.generate_series(1, pg_catalog.cardinality(v_ids)) AS place
    ORDER BY place;
END;
$$;

-- Write down what became of these new runs (E1): those that ended at once, those whose input and options were replaced,
-- and with p_all_events also those that were simply queued. A duplicate is nothing that happened.
CREATE OR REPLACE FUNCTION _cb_note_births(p_run_ids bigint[], p_verdicts text[], p_errors jsonb[], p_all_events boolean)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF p_verdicts <@ ARRAY['duplicate'] OR (NOT p_all_events AND p_verdicts <@ ARRAY['queued', 'duplicate']) THEN
        RETURN;
    END IF;
    INSERT INTO cb_events (at, run_kind, run_id, event, from_status, to_status, actor, details)
    SELECT _cb_now(), 'task', p_run_ids[place], p_verdicts[place],
           CASE WHEN p_verdicts[place] = 'replaced' THEN 'queued' ELSE '' END,
           CASE WHEN p_verdicts[place] = 'replaced' THEN 'queued' ELSE p_verdicts[place] END,
           'client', CASE WHEN p_errors[place] IS NOT NULL THEN _cb_error_in_short(p_errors[place]) END
    FROM pg_catalog.generate_series(1, pg_catalog.cardinality(p_run_ids)) AS place
    WHERE p_verdicts[place] IN ('skipped', 'failed', 'replaced') OR (p_all_events AND p_verdicts[place] = 'queued')
    ORDER BY p_run_ids[place], place;
END;
$$;

-- Give these runs their tags. One that was replaced has none but the new ones; a duplicate keeps what it has.
CREATE OR REPLACE FUNCTION _cb_tag_tasks(p_run_ids bigint[], p_verdicts text[], p_tags text[])
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM cb_run_tags AS known
    USING ROWS FROM (pg_catalog.unnest(p_run_ids), pg_catalog.unnest(p_verdicts)) AS run (id, verdict)
    WHERE known.run_kind = 'task' AND known.run_id = run.id AND run.verdict = 'replaced';

    INSERT INTO cb_run_tags (run_kind, run_id, tag)
    SELECT DISTINCT 'task', run.id, given.tag
    FROM ROWS FROM (pg_catalog.unnest(p_run_ids), pg_catalog.unnest(p_verdicts)) AS run (id, verdict)
    CROSS JOIN pg_catalog.unnest(p_tags) AS given (tag)
    WHERE run.verdict <> 'duplicate'
    ORDER BY run.id, given.tag
    ON CONFLICT DO NOTHING;
END;
$$;

-- Refuse tags that cannot be: more than twenty, NULL, empty, or longer than 100 characters.
CREATE OR REPLACE FUNCTION _cb_check_tags(p_tags text[])
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF pg_catalog.cardinality(p_tags) > 20 THEN
        RAISE EXCEPTION 'p_tags holds more than 20 tags' USING ERRCODE = 'CB001';
    END IF;
    IF EXISTS (
        SELECT FROM pg_catalog.unnest(p_tags) AS given (tag) WHERE given.tag IS NULL OR length(given.tag) NOT BETWEEN 1 AND 100
    ) THEN
        RAISE EXCEPTION 'a tag has 1 to 100 characters' USING ERRCODE = 'CB001';
    END IF;
END;
$$;
