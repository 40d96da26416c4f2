-- How runs of flows end: completed when their end is full, failed with a step, canceled or expired.
--
-- A run that has ended has no live steps (R8): those that wait, are queued or run are canceled in the same transaction.
-- The claim of a handler that still runs is void at once, and it is told when its lease is renewed (R8a). A flow has at
-- most a thousand steps, so this is never much.
--
-- Locks: step runs by id, of flow runs that the caller has locked.

-- Complete these runs, whose end is full: the output is that of the first completed step among the flow's outputs, or
-- nothing when all of them were skipped; where an output is required, that is a failure (F8). Returns the queues of what
-- was queued because of it.
CREATE OR REPLACE FUNCTION _cb_complete_flows(p_flow_run_ids bigint[])
RETURNS text[]
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_completed bigint[];
    v_failed bigint[];
    v_queues text[] := ARRAY[]::text[];
BEGIN
    WITH full_runs AS (
        SELECT run.id, flow.output_required, result.output
        FROM cb_flow_runs AS run
        JOIN cb_flows AS flow ON flow.id = run.flow_id
        LEFT JOIN LATERAL (
            SELECT step_run.output
            FROM cb_step_runs AS step_run
            JOIN cb_steps AS step ON step.id = step_run.step_id
            WHERE step_run.flow_run_id = run.id AND step.output_rank IS NOT NULL AND step_run.status = 'completed'
            ORDER BY step.output_rank
            LIMIT 1
        ) AS result ON true
        WHERE run.id = ANY (p_flow_run_ids) AND run.status = 'started'
    ), ended AS (
        UPDATE cb_flow_runs AS run
        SET status = CASE WHEN ending.output IS NULL AND ending.output_required THEN 'failed' ELSE 'completed' END,
            output = CASE WHEN NOT ending.output_required THEN coalesce(ending.output, 'null') ELSE ending.output END,
            error = CASE WHEN ending.output IS NULL AND ending.output_required THEN _cb_no_output_error() END,
            finished_at = _cb_now()
        FROM full_runs AS ending
        WHERE run.id = ending.id
        RETURNING run.id, run.status
    )
    SELECT array_agg(ended.id) FILTER (WHERE ended.status = 'completed'),
           array_agg(ended.id) FILTER (WHERE ended.status = 'failed')
    INTO v_completed, v_failed
    FROM ended;

    IF v_failed IS NOT NULL THEN
        PERFORM _cb_note_events('flow', 'failed', v_failed, 'started', 'failed', 'engine');
        v_queues := _cb_run_flow_on_fail(v_failed);
    END IF;
    PERFORM _cb_tell_finished_flows(v_completed || v_failed);
    RETURN v_queues;
END;
$$;

-- Fail the runs of these steps, which have failed for good: each once, with the error of the first, and cancel what else
-- lives in them (F18). Returns the queues of what was queued because of it.
CREATE OR REPLACE FUNCTION _cb_fail_flows_of(p_step_run_ids bigint[])
RETURNS text[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_failed bigint[];
BEGIN
    WITH failure AS (
        SELECT DISTINCT ON (step_run.flow_run_id) step_run.flow_run_id,
               step_run.error || jsonb_build_object('step', step.name, 'step_run_id', step_run.id) AS error
        FROM cb_step_runs AS step_run
        JOIN cb_steps AS step ON step.id = step_run.step_id
        WHERE step_run.id = ANY (p_step_run_ids)
        ORDER BY step_run.flow_run_id, step_run.id
    ), failed AS (
        UPDATE cb_flow_runs AS run
        SET status = 'failed', error = failure.error, finished_at = _cb_now()
        FROM failure
        WHERE run.id = failure.flow_run_id AND run.status = 'started'
        RETURNING run.id
    )
    SELECT array_agg(failed.id) INTO v_failed FROM failed;
    IF v_failed IS NULL THEN
        RETURN ARRAY[]::text[];      -- they were being ended already
    END IF;
    RETURN _cb_after_flow_failures(v_failed);
END;
$$;

-- Do what follows from the failure of these runs: events, live steps canceled, waiting callers told, on_fail tasks run.
CREATE OR REPLACE FUNCTION _cb_after_flow_failures(p_flow_run_ids bigint[])
RETURNS text[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO cb_events (at, run_kind, run_id, event, from_status, to_status, actor, details)
    SELECT _cb_now(), 'flow', run.id, 'failed', 'started', 'failed', 'engine',
           _cb_error_in_short(run.error) || jsonb_build_object('step', run.error ->> 'step')
    FROM cb_flow_runs AS run
    WHERE run.id = ANY (p_flow_run_ids)
    ORDER BY run.id;
    PERFORM _cb_cancel_live_steps(p_flow_run_ids);
    PERFORM _cb_tell_finished_flows(p_flow_run_ids);
    RETURN _cb_run_flow_on_fail(p_flow_run_ids);
END;
$$;

-- Cancel every live step of these runs. Claims of handlers that run are void from now on; their workers look at once.
CREATE OR REPLACE FUNCTION _cb_cancel_live_steps(p_flow_run_ids bigint[])
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_ids bigint[];
    v_statuses text[];      -- before
BEGIN
    WITH live AS (
        SELECT run.id, run.status
        FROM cb_step_runs AS run
        WHERE run.flow_run_id = ANY (p_flow_run_ids)
          AND run.status NOT IN ('completed', 'failed', 'skipped', 'canceled')
        ORDER BY run.id
        FOR NO KEY UPDATE
    )
    SELECT array_agg(live.id), array_agg(live.status) INTO v_ids, v_statuses FROM live;
    IF v_ids IS NULL THEN
        RETURN;
    END IF;

    UPDATE cb_step_runs AS run
    SET status = 'canceled', finished_at = _cb_now(), lease_until = NULL, visible_at = NULL
    WHERE run.id = ANY (v_ids);

    INSERT INTO cb_events (at, run_kind, run_id, event, from_status, to_status, actor)
    SELECT _cb_now(), 'step', live.id, 'canceled', live.status, 'canceled', 'engine'
    FROM unnest(v_ids, v_statuses) AS live (id, status)
    ORDER BY live.id;
    IF v_statuses && ARRAY['started', 'canceling'] THEN
        PERFORM pg_notify('cb_work', 'cancel');
    END IF;
END;
$$;

-- End those of these runs that are being canceled or expired and have no live step any more.
CREATE OR REPLACE FUNCTION _cb_end_stopped_flows(p_flow_run_ids bigint[])
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_ended bigint[];
    v_outcomes text[];
BEGIN
    WITH ended AS (
        UPDATE cb_flow_runs AS run
        SET status = run.outcome, finished_at = _cb_now()
        WHERE run.id = ANY (p_flow_run_ids) AND run.status = 'canceling'
          AND NOT EXISTS (
              SELECT FROM cb_step_runs AS live
              WHERE live.flow_run_id = run.id AND live.status NOT IN ('completed', 'failed', 'skipped', 'canceled')
          )
        RETURNING run.id, run.status
    )
    SELECT array_agg(ended.id), array_agg(ended.status) INTO v_ended, v_outcomes FROM ended;
    IF v_ended IS NOT NULL THEN
        INSERT INTO cb_events (at, run_kind, run_id, event, from_status, to_status, actor)
        SELECT _cb_now(), 'flow', ended.id, ended.outcome, 'canceling', ended.outcome, 'engine'
        FROM unnest(v_ended, v_outcomes) AS ended (id, outcome)
        ORDER BY ended.id;
        PERFORM _cb_tell_finished_flows(v_ended);
    END IF;
END;
$$;

-- Queue the on_fail task of those of these failed runs whose flow has one, with the run, its input, and what failed in
-- which step. Returns their queues. Where the task is not registered, an event of the failed run says so.
CREATE OR REPLACE FUNCTION _cb_run_flow_on_fail(p_flow_run_ids bigint[])
RETURNS text[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_queues text[];
    v_unanswered bigint[];
BEGIN
    WITH failed AS (
        SELECT run.id, run.priority, run.headers, answer.id AS answer_id, answer.queue,
               jsonb_build_object(
                   'run_id', run.id,
                   'flow', run.flow_name,
                   'input', run.input,
                   'step', run.error ->> 'step',
                   'step_input', coalesce(
                       (
                           SELECT jsonb_object_agg(received.source, coalesce(received.value, source.output))
                           FROM cb_step_inputs AS received
                           JOIN cb_step_runs AS source ON source.id = received.source_run_id
                           WHERE received.step_run_id = (run.error ->> 'step_run_id')::bigint AND NOT received.is_skipped
                       ),
                       '{}'
                   ),
                   'error', run.error - 'step' - 'step_run_id'
               ) AS failure
        FROM cb_flow_runs AS run
        JOIN cb_flows AS flow ON flow.id = run.flow_id AND flow.on_fail <> ''
        LEFT JOIN cb_tasks AS answer ON answer.name = flow.on_fail
        WHERE run.id = ANY (p_flow_run_ids)
    ), answered AS (
        INSERT INTO cb_task_runs AS run (task_id, queue, priority, input, headers, role, queued_at)
        SELECT failed.answer_id, failed.queue, failed.priority, failed.failure, failed.headers, 'on_fail', _cb_now()
        FROM failed
        WHERE failed.answer_id IS NOT NULL
        ORDER BY failed.id
        RETURNING run.queue
    )
    SELECT (SELECT array_agg(DISTINCT answered.queue) FROM answered),
           (SELECT array_agg(failed.id) FROM failed WHERE failed.answer_id IS NULL)
    INTO v_queues, v_unanswered;

    PERFORM _cb_note_events('flow', 'on_fail_unknown', v_unanswered, 'failed', 'failed', 'engine');
    RETURN coalesce(v_queues, ARRAY[]::text[]);
END;
$$;

-- Hint that these flow runs may have finished, if anybody watches (`sql/watching.sql`): their ids, or nothing when they do
-- not fit into a notification (R9).
CREATE OR REPLACE FUNCTION _cb_tell_finished_flows(p_flow_run_ids bigint[])
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_ids text := array_to_string(p_flow_run_ids, ',');
BEGIN
    IF v_ids <> '' AND _cb_is_watched() THEN
        PERFORM pg_notify('cb_live', CASE WHEN length(v_ids) < 7900 THEN 'flow_runs ' || v_ids ELSE '' END);
    END IF;
END;
$$;

-- Write one event for each of these runs of a kind.
CREATE OR REPLACE FUNCTION _cb_note_events(
    p_run_kind text,
    p_event text,
    p_run_ids bigint[],
    p_from_status text,
    p_to_status text,
    p_actor text,
    p_delivery_tokens uuid[] DEFAULT NULL,
    p_details jsonb[] DEFAULT NULL
)
RETURNS void
LANGUAGE sql SET search_path FROM CURRENT AS $$
    INSERT INTO cb_events (at, run_kind, run_id, event, from_status, to_status, actor, delivery_token, details)
    SELECT _cb_now(), p_run_kind, noted.run_id, p_event, p_from_status, p_to_status, p_actor, noted.delivery_token,
           noted.details
    FROM unnest(p_run_ids, p_delivery_tokens, p_details) AS noted (run_id, delivery_token, details)
    ORDER BY noted.run_id
$$;

-- What is stored of a run that should have had an output.
CREATE OR REPLACE FUNCTION _cb_no_output_error()
RETURNS jsonb
LANGUAGE sql IMMUTABLE SET search_path FROM CURRENT AS $$
    SELECT jsonb_build_object(
        'type', 'NoOutput', 'message', 'no output: every step that could have given one was skipped', 'traceback', ''
    )
$$;
