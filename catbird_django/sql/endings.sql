-- How runs of flows end: completed when their end is full or early, failed with a step, canceled or expired.
--
-- A run that has ended has no live steps (R8): those that wait, are queued or run are canceled in the same transaction.
-- The claim of a handler that still runs is void at once, and it is told when its lease is renewed (R8a). A flow has at
-- most a thousand steps, so this is never much. Items of maps may be many: with more than a batch of them the run is first
-- 'failing', 'completing' or 'canceling', and ends with the last of them (`sql/item_endings.sql`).
--
-- Locks: step runs by id, then items by id, of flow runs that the caller has locked.

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
        SELECT run.id, flow.output_required, result.id AS result_id, result.output, result.is_list
        FROM cb_flow_runs AS run
        JOIN cb_flows AS flow ON flow.id = run.flow_id
        LEFT JOIN LATERAL (
            SELECT step_run.id, step_run.output, step_run.items_spawned IS NOT NULL AS is_list
            FROM cb_step_runs AS step_run
            JOIN cb_steps AS step ON step.id = step_run.step_id
            WHERE step_run.flow_run_id = run.id AND step.output_rank IS NOT NULL AND step_run.status = 'completed'
            ORDER BY step.output_rank
            LIMIT 1
        ) AS result ON true
        WHERE run.id = ANY (p_flow_run_ids) AND run.status = 'started'
    ), ended AS (
        UPDATE cb_flow_runs AS run
        SET status = CASE WHEN ending.result_id IS NULL AND ending.output_required THEN 'failed' ELSE 'completed' END,
            output = CASE
                WHEN ending.result_id IS NOT NULL THEN ending.output
                WHEN NOT ending.output_required THEN 'null'
            END,
            output_run_id = CASE WHEN ending.is_list THEN ending.result_id END,
            error = CASE WHEN ending.result_id IS NULL AND ending.output_required THEN _cb_no_output_error() END,
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
        SET status = 'failing', outcome = 'failed', ending_since = _cb_now(), error = failure.error
        FROM failure
        WHERE run.id = failure.flow_run_id AND run.status = 'started'
        RETURNING run.id
    )
    SELECT array_agg(failed.id) INTO v_failed FROM failed;
    IF v_failed IS NULL THEN
        RETURN ARRAY[]::text[];      -- they were being ended already
    END IF;
    RETURN _cb_end_flows(v_failed);
END;
$$;

-- End these runs, which were started until now and whose outcome has just been decided: what lives in them is canceled.
-- Returns the queues of what was queued because of it.
CREATE OR REPLACE FUNCTION _cb_end_flows(p_flow_run_ids bigint[])
RETURNS text[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM _cb_cancel_live_steps(p_flow_run_ids);
    PERFORM _cb_end_items(p_flow_run_ids, 'canceled');
    RETURN _cb_end_stopped_flows(p_flow_run_ids, 'started');
END;
$$;

-- Complete the runs of these steps early, each with an output and for a reason, on behalf of a step (F16). The caller has
-- locked them, and completed what ends them. Returns the queues of what was queued because of it.
CREATE OR REPLACE FUNCTION _cb_complete_flows_early(
    p_flow_run_ids bigint[],
    p_step_ids bigint[],
    p_outputs jsonb[],
    p_reasons text[]
)
RETURNS text[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_ended bigint[];
BEGIN
    WITH ended AS (
        UPDATE cb_flow_runs AS run
        SET status = 'completing', outcome = 'completed', ending_since = _cb_now(), output = given.output,
            early_step = step.name, early_reason = left(given.reason, 2000)
        FROM unnest(p_flow_run_ids, p_step_ids, p_outputs, p_reasons) AS given (id, step_id, output, reason)
        JOIN cb_steps AS step ON step.id = given.step_id
        WHERE run.id = given.id AND run.status = 'started'
        RETURNING run.id
    )
    SELECT array_agg(ended.id) INTO v_ended FROM ended;
    IF v_ended IS NULL THEN
        RETURN ARRAY[]::text[];
    END IF;
    INSERT INTO cb_events (at, run_kind, run_id, event, from_status, to_status, actor, details)
    SELECT _cb_now(), 'flow', run.id, 'completed_early', 'started', 'completing', 'handler',
           jsonb_build_object('step', run.early_step, 'reason', run.early_reason)
    FROM cb_flow_runs AS run
    WHERE run.id = ANY (v_ended)
    ORDER BY run.id;
    RETURN _cb_end_flows(v_ended);
END;
$$;

-- Complete the runs of these claimed steps early, each with the output of its flow and a reason: 'completed', 'canceled' (it
-- was being canceled) or 'stale' for each. Of several claims of one run the first counts, and the others are stale: their
-- run has ended.
CREATE OR REPLACE FUNCTION cb_complete_steps_early(
    p_step_run_ids bigint[],
    p_delivery_tokens uuid[],
    p_outputs jsonb[],
    p_reasons text[],
    p_notify boolean DEFAULT false
)
RETURNS TABLE (run_id bigint, verdict text)
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '250ms' AS $$
DECLARE
    v_places bigint[];
    v_flow_run_ids bigint[];
    v_step_ids bigint[];
    v_queues text[];
BEGIN
    PERFORM _cb_lock_flow_runs_of(p_step_run_ids);
    WITH held AS (
        SELECT DISTINCT ON (run.flow_run_id) run.id, claim.place, claim.output
        FROM unnest(p_step_run_ids, p_delivery_tokens, p_outputs)
            WITH ORDINALITY AS claim (id, delivery_token, output, place)
        JOIN cb_step_runs AS run
            ON run.id = claim.id AND run.delivery_token = claim.delivery_token AND run.status = 'started'
        ORDER BY run.flow_run_id, claim.place
    ), completed AS (
        UPDATE cb_step_runs AS run
        SET status = 'completed', output = held.output, error = NULL, lease_until = NULL, finished_at = _cb_now()
        FROM held
        WHERE run.id = held.id
        RETURNING run.flow_run_id, run.step_id, held.place
    )
    SELECT coalesce(array_agg(completed.place ORDER BY completed.flow_run_id), ARRAY[]::bigint[]),
           array_agg(completed.flow_run_id ORDER BY completed.flow_run_id),
           array_agg(completed.step_id ORDER BY completed.flow_run_id)
    INTO v_places, v_flow_run_ids, v_step_ids
    FROM completed;

    v_queues := _cb_complete_flows_early(
        v_flow_run_ids, v_step_ids, ARRAY(SELECT p_outputs[given.place] FROM unnest(v_places) WITH ORDINALITY AS given (place, nth) ORDER BY nth),
        ARRAY(SELECT p_reasons[given.place] FROM unnest(v_places) WITH ORDINALITY AS given (place, nth) ORDER BY nth)
    );
    RETURN QUERY
    SELECT * FROM _cb_settle_steps_end(p_step_run_ids, p_delivery_tokens, v_places, 'completed', v_queues, p_notify);
END;
$$;

-- Complete the runs of these claimed items early, as cb_complete_steps_early says of steps.
CREATE OR REPLACE FUNCTION cb_complete_items_early(
    p_item_ids bigint[],
    p_delivery_tokens uuid[],
    p_outputs jsonb[],
    p_reasons text[],
    p_notify boolean DEFAULT false
)
RETURNS TABLE (run_id bigint, verdict text)
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '250ms' AS $$
DECLARE
    v_ids bigint[];
    v_places bigint[];
    v_flow_run_ids bigint[];
    v_step_ids bigint[];
    v_queues text[];
BEGIN
    PERFORM _cb_lock_steps_of_items(p_item_ids);
    WITH held AS (
        SELECT DISTINCT ON (item.flow_run_id) item.id, claim.place, claim.output
        FROM unnest(p_item_ids, p_delivery_tokens, p_outputs)
            WITH ORDINALITY AS claim (id, delivery_token, output, place)
        JOIN cb_items AS item
            ON item.id = claim.id AND item.delivery_token = claim.delivery_token AND item.status = 'started'
        ORDER BY item.flow_run_id, claim.place
    ), completed AS (
        UPDATE cb_items AS item
        SET status = 'completed', output = held.output, error = NULL, lease_until = NULL, finished_at = _cb_now()
        FROM held
        WHERE item.id = held.id
        RETURNING item.id, item.flow_run_id, item.step_id, held.place
    )
    SELECT coalesce(array_agg(completed.id), ARRAY[]::bigint[]),
           coalesce(array_agg(completed.place ORDER BY completed.flow_run_id), ARRAY[]::bigint[]),
           array_agg(completed.flow_run_id ORDER BY completed.flow_run_id),
           array_agg(completed.step_id ORDER BY completed.flow_run_id)
    INTO v_ids, v_places, v_flow_run_ids, v_step_ids
    FROM completed;

    PERFORM _cb_count_ended_items(ARRAY[]::bigint[], v_ids);
    v_queues := _cb_complete_flows_early(
        v_flow_run_ids, v_step_ids,
        ARRAY(SELECT p_outputs[given.place] FROM unnest(v_places) WITH ORDINALITY AS given (place, nth) ORDER BY nth),
        ARRAY(SELECT p_reasons[given.place] FROM unnest(v_places) WITH ORDINALITY AS given (place, nth) ORDER BY nth)
    );
    RETURN QUERY
    SELECT * FROM _cb_settle_items_end(p_item_ids, p_delivery_tokens, v_places, 'completed', v_queues, p_notify);
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

-- End those of these runs of which the outcome is decided and nothing lives any more; p_from is their status before it was
-- decided, if that was in this transaction. Returns the queues of what was queued because of it.
CREATE OR REPLACE FUNCTION _cb_end_stopped_flows(p_flow_run_ids bigint[], p_from text DEFAULT NULL)
RETURNS text[]
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_ended bigint[];
    v_failed bigint[];
BEGIN
    WITH stopped AS (
        SELECT run.id, run.status
        FROM cb_flow_runs AS run
        WHERE run.id = ANY (p_flow_run_ids) AND run.status IN ('canceling', 'failing', 'completing')
          AND NOT EXISTS (
              SELECT FROM cb_step_runs AS live
              WHERE live.flow_run_id = run.id
                AND (live.status NOT IN ('completed', 'failed', 'skipped', 'canceled')
                     OR live.items_spawned > live.items_completed + live.items_failed + live.items_canceled)
          )
    ), ended AS (
        UPDATE cb_flow_runs AS run
        SET status = run.outcome, finished_at = _cb_now()
        FROM stopped
        WHERE run.id = stopped.id
        RETURNING run.id, coalesce(p_from, stopped.status) AS from_status, run.status, run.error
    ), noted AS (
        INSERT INTO cb_events (at, run_kind, run_id, event, from_status, to_status, actor, details)
        SELECT _cb_now(), 'flow', ended.id, ended.status, ended.from_status, ended.status, 'engine',
               CASE ended.status
                   WHEN 'failed' THEN _cb_error_in_short(ended.error) || jsonb_build_object('step', ended.error ->> 'step')
               END
        FROM ended
        ORDER BY ended.id
    )
    SELECT array_agg(ended.id), array_agg(ended.id) FILTER (WHERE ended.status = 'failed')
    INTO v_ended, v_failed
    FROM ended;
    IF v_ended IS NULL THEN
        RETURN ARRAY[]::text[];
    END IF;
    PERFORM _cb_tell_finished_flows(v_ended);
    IF v_failed IS NULL THEN
        RETURN ARRAY[]::text[];
    END IF;
    RETURN _cb_run_flow_on_fail(v_failed);
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
                           JOIN cb_step_runs AS source
                               ON source.id = received.source_run_id AND source.items_spawned IS NULL
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
