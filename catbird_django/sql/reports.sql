-- Reports: what handlers say about their runs while they work on them (T14).
--
-- Progress is the run's own, and only the newest counts; log lines are rows beside it, and capped. Both are said on behalf
-- of a claim and name its delivery. The token stays on the row when the run has ended, so words that arrive late still
-- count; once the run was given to another they are refused as stale (R5).
--
-- Locks: task runs, step runs or items, for progress, without waiting; none for log lines.

-- Store how far claimed runs are, as JSON with done, total and message; the time is added. 'reported', 'locked'
-- (somebody has its row just now: say it again later) or 'stale' for each. A run that went back to the queue will begin
-- anew, so nothing is stored of it. p_notify tells open pages, once for the whole batch. Waits for no lock.
CREATE OR REPLACE FUNCTION cb_report_tasks(
    p_run_ids bigint[],
    p_delivery_tokens uuid[],
    p_progress jsonb[],
    p_notify boolean DEFAULT false
)
RETURNS TABLE (run_id bigint, verdict text)
LANGUAGE plpgsql ROWS 200 SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_places bigint[];
    v_locked bigint[] := ARRAY[]::bigint[];
BEGIN
    WITH held AS (
        SELECT run.id, claim.place, claim.progress
        FROM unnest(p_run_ids, p_delivery_tokens, p_progress)
            WITH ORDINALITY AS claim (id, delivery_token, progress, place)
        JOIN cb_task_runs AS run ON run.id = claim.id AND run.delivery_token = claim.delivery_token
        WHERE run.status <> 'queued'
        FOR NO KEY UPDATE OF run SKIP LOCKED
    ), reported AS (
        UPDATE cb_task_runs AS run
        SET progress = held.progress || jsonb_build_object('at', _cb_now())
        FROM held
        WHERE run.id = held.id
        RETURNING held.place
    )
    SELECT array_agg(place) INTO v_places FROM reported;

    IF p_notify AND v_places IS NOT NULL THEN
        PERFORM _cb_tell_finished_tasks(p_run_ids);
    END IF;
    IF cardinality(v_places) IS DISTINCT FROM cardinality(p_run_ids) THEN
        -- A statement of its own: what went back to the queue meanwhile is not locked, but stale.
        v_locked := ARRAY(
            SELECT claim.place
            FROM unnest(p_run_ids, p_delivery_tokens) WITH ORDINALITY AS claim (id, delivery_token, place)
            JOIN cb_task_runs AS run ON run.id = claim.id AND run.delivery_token = claim.delivery_token
            WHERE run.status <> 'queued' AND claim.place <> ALL (coalesce(v_places, ARRAY[]::bigint[]))
        );
    END IF;
    RETURN QUERY
    SELECT * FROM _cb_different_verdicts(
        p_run_ids,
        v_places || v_locked,
        array_fill('reported'::text, ARRAY[coalesce(cardinality(v_places), 0)])
            || array_fill('locked'::text, ARRAY[cardinality(v_locked)])
    );
END;
$$;

-- Store how far claimed steps are, as cb_report_tasks says of runs of tasks; pages of their flow runs are told.
CREATE OR REPLACE FUNCTION cb_report_steps(
    p_step_run_ids bigint[],
    p_delivery_tokens uuid[],
    p_progress jsonb[],
    p_notify boolean DEFAULT false
)
RETURNS TABLE (run_id bigint, verdict text)
LANGUAGE plpgsql ROWS 200 SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_places bigint[];
    v_locked bigint[] := ARRAY[]::bigint[];
    v_flow_run_ids bigint[];
BEGIN
    WITH held AS (
        SELECT run.id, claim.place, claim.progress
        FROM unnest(p_step_run_ids, p_delivery_tokens, p_progress)
            WITH ORDINALITY AS claim (id, delivery_token, progress, place)
        JOIN cb_step_runs AS run ON run.id = claim.id AND run.delivery_token = claim.delivery_token
        WHERE run.status <> 'queued'
        FOR NO KEY UPDATE OF run SKIP LOCKED
    ), reported AS (
        UPDATE cb_step_runs AS run
        SET progress = held.progress || jsonb_build_object('at', _cb_now())
        FROM held
        WHERE run.id = held.id
        RETURNING held.place, run.flow_run_id
    )
    SELECT array_agg(place), array_agg(DISTINCT flow_run_id) INTO v_places, v_flow_run_ids FROM reported;

    IF p_notify AND v_places IS NOT NULL THEN
        PERFORM _cb_tell_finished_flows(v_flow_run_ids);
    END IF;
    IF cardinality(v_places) IS DISTINCT FROM cardinality(p_step_run_ids) THEN
        -- A statement of its own: what went back to the queue meanwhile is not locked, but stale.
        v_locked := ARRAY(
            SELECT claim.place
            FROM unnest(p_step_run_ids, p_delivery_tokens) WITH ORDINALITY AS claim (id, delivery_token, place)
            JOIN cb_step_runs AS run ON run.id = claim.id AND run.delivery_token = claim.delivery_token
            WHERE run.status <> 'queued' AND claim.place <> ALL (coalesce(v_places, ARRAY[]::bigint[]))
        );
    END IF;
    RETURN QUERY
    SELECT * FROM _cb_different_verdicts(
        p_step_run_ids,
        v_places || v_locked,
        array_fill('reported'::text, ARRAY[coalesce(cardinality(v_places), 0)])
            || array_fill('locked'::text, ARRAY[cardinality(v_locked)])
    );
END;
$$;

-- Store how far claimed items are, as cb_report_tasks says of runs of tasks; pages of their flow runs are told.
CREATE OR REPLACE FUNCTION cb_report_items(
    p_item_ids bigint[],
    p_delivery_tokens uuid[],
    p_progress jsonb[],
    p_notify boolean DEFAULT false
)
RETURNS TABLE (run_id bigint, verdict text)
LANGUAGE plpgsql ROWS 200 SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_places bigint[];
    v_locked bigint[] := ARRAY[]::bigint[];
    v_flow_run_ids bigint[];
BEGIN
    WITH held AS (
        SELECT item.id, claim.place, claim.progress
        FROM unnest(p_item_ids, p_delivery_tokens, p_progress)
            WITH ORDINALITY AS claim (id, delivery_token, progress, place)
        JOIN cb_items AS item ON item.id = claim.id AND item.delivery_token = claim.delivery_token
        WHERE item.status <> 'queued'
        FOR NO KEY UPDATE OF item SKIP LOCKED
    ), reported AS (
        UPDATE cb_items AS item
        SET progress = held.progress || jsonb_build_object('at', _cb_now())
        FROM held
        WHERE item.id = held.id
        RETURNING held.place, item.flow_run_id
    )
    SELECT array_agg(place), array_agg(DISTINCT flow_run_id) INTO v_places, v_flow_run_ids FROM reported;

    IF p_notify AND v_places IS NOT NULL THEN
        PERFORM _cb_tell_finished_flows(v_flow_run_ids);
    END IF;
    IF cardinality(v_places) IS DISTINCT FROM cardinality(p_item_ids) THEN
        -- A statement of its own: what went back to the queue meanwhile is not locked, but stale.
        v_locked := ARRAY(
            SELECT claim.place
            FROM unnest(p_item_ids, p_delivery_tokens) WITH ORDINALITY AS claim (id, delivery_token, place)
            JOIN cb_items AS item ON item.id = claim.id AND item.delivery_token = claim.delivery_token
            WHERE item.status <> 'queued' AND claim.place <> ALL (coalesce(v_places, ARRAY[]::bigint[]))
        );
    END IF;
    RETURN QUERY
    SELECT * FROM _cb_different_verdicts(
        p_item_ids,
        v_places || v_locked,
        array_fill('reported'::text, ARRAY[coalesce(cardinality(v_places), 0)])
            || array_fill('locked'::text, ARRAY[cardinality(v_locked)])
    );
END;
$$;

-- Write lines to the logs of claimed runs: 'logged', 'dropped' (the log is full) or 'stale' for each. A log has 1 000 lines,
-- the last of which says that it is full; a line has 4 000 characters. p_ages says how long ago a line was said, so that
-- the clock of a worker does not matter (R7).
CREATE OR REPLACE FUNCTION cb_log_tasks(
    p_run_ids bigint[],
    p_delivery_tokens uuid[],
    p_attempts integer[],
    p_levels text[],
    p_messages text[],
    p_ages interval[]
)
RETURNS TABLE (run_id bigint, verdict text)
LANGUAGE plpgsql ROWS 200 SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    RETURN QUERY
    SELECT logged.* FROM _cb_log_runs(
        'task', p_run_ids, p_attempts, p_levels, p_messages, p_ages,
        ARRAY(
            SELECT claim.place
            FROM unnest(p_run_ids, p_delivery_tokens) WITH ORDINALITY AS claim (id, delivery_token, place)
            JOIN cb_task_runs AS run ON run.id = claim.id AND run.delivery_token = claim.delivery_token
        )
    ) AS logged;
END;
$$;

-- Write lines to the logs of claimed steps, as cb_log_tasks says of runs of tasks.
CREATE OR REPLACE FUNCTION cb_log_steps(
    p_step_run_ids bigint[],
    p_delivery_tokens uuid[],
    p_attempts integer[],
    p_levels text[],
    p_messages text[],
    p_ages interval[]
)
RETURNS TABLE (run_id bigint, verdict text)
LANGUAGE plpgsql ROWS 200 SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    RETURN QUERY
    SELECT logged.* FROM _cb_log_runs(
        'step', p_step_run_ids, p_attempts, p_levels, p_messages, p_ages,
        ARRAY(
            SELECT claim.place
            FROM unnest(p_step_run_ids, p_delivery_tokens) WITH ORDINALITY AS claim (id, delivery_token, place)
            JOIN cb_step_runs AS run ON run.id = claim.id AND run.delivery_token = claim.delivery_token
        )
    ) AS logged;
END;
$$;

-- Write lines to the logs of claimed items, as cb_log_tasks says of runs of tasks.
CREATE OR REPLACE FUNCTION cb_log_items(
    p_item_ids bigint[],
    p_delivery_tokens uuid[],
    p_attempts integer[],
    p_levels text[],
    p_messages text[],
    p_ages interval[]
)
RETURNS TABLE (run_id bigint, verdict text)
LANGUAGE plpgsql ROWS 200 SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    RETURN QUERY
    SELECT logged.* FROM _cb_log_runs(
        'item', p_item_ids, p_attempts, p_levels, p_messages, p_ages,
        ARRAY(
            SELECT claim.place
            FROM unnest(p_item_ids, p_delivery_tokens) WITH ORDINALITY AS claim (id, delivery_token, place)
            JOIN cb_items AS item ON item.id = claim.id AND item.delivery_token = claim.delivery_token
        )
    ) AS logged;
END;
$$;

-- Write lines to the logs of runs of a kind: those at p_places, the others are stale.
CREATE OR REPLACE FUNCTION _cb_log_runs(
    p_run_kind text,
    p_run_ids bigint[],
    p_attempts integer[],
    p_levels text[],
    p_messages text[],
    p_ages interval[],
    p_places bigint[]
)
RETURNS TABLE (run_id bigint, verdict text)
LANGUAGE plpgsql ROWS 200 SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    RETURN QUERY
    WITH said AS (
        SELECT line.*, row_number() OVER (PARTITION BY line.run_id ORDER BY line.place) AS nth
        FROM unnest(p_run_ids, p_attempts, p_levels, p_messages, p_ages)
            WITH ORDINALITY AS line (run_id, attempt, level, message, age, place)
        JOIN unnest(p_places) AS held (place) ON held.place = line.place
    ), stored AS (
        SELECT known.run_id, count(line.id) AS line_count
        FROM (SELECT DISTINCT said.run_id FROM said) AS known
        LEFT JOIN LATERAL (
            SELECT log.id FROM cb_run_logs AS log WHERE log.run_kind = p_run_kind AND log.run_id = known.run_id LIMIT 1000
        ) AS line ON true
        GROUP BY known.run_id
    ), numbered AS (
        SELECT said.*, stored.line_count + said.nth AS number FROM said JOIN stored USING (run_id)
    ), logged AS (
        INSERT INTO cb_run_logs (at, run_kind, run_id, attempt, level, message)
        SELECT _cb_now() - greatest(numbered.age, interval '0'), p_run_kind, numbered.run_id, numbered.attempt,
               CASE WHEN numbered.number < 1000 THEN numbered.level ELSE 'warning' END,
               CASE
                   WHEN numbered.number < 1000 THEN left(numbered.message, 4000)
                   ELSE 'The log is full: this line and those after it were dropped.'
               END
        FROM numbered
        WHERE numbered.number <= 1000
        ORDER BY numbered.place
    )
    SELECT given.id,
           CASE WHEN numbered.number IS NULL THEN 'stale' WHEN numbered.number < 1000 THEN 'logged' ELSE 'dropped' END
    FROM unnest(p_run_ids) WITH ORDINALITY AS given (id, place)
    LEFT JOIN numbered USING (place)
    ORDER BY given.place;
END;
$$;
