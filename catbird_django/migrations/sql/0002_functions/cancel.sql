-- Cancel: a queued run ends at once, a started one when its handler has been told and has stopped.
--
-- Between the two it is 'canceling'. Its worker learns of it at the next renewal of its lease, which a notification
-- brings forward. Whatever the handler reports then, the run is canceled: a result that arrives meanwhile is dropped. It
-- also ends when its worker is lost, or when the grace is over (`sql/tick.sql`). A task with on_cancel 'finish' is left
-- alone instead: its handler is told nothing, has no grace, and its result counts; only further attempts are off. A run
-- that has ended stays as it is.
--
-- Locks: task runs by id.

-- Cancel these runs, for a reason, on behalf of somebody. 'canceled', 'canceling', 'finished' (it had ended before) or
-- 'unknown' for each. Asking again changes nothing: the first reason stays. Joins the caller's transaction.
CREATE OR REPLACE FUNCTION cb_cancel_tasks(
    p_run_ids bigint[],
    p_reason text DEFAULT '',
    p_actor text DEFAULT '',
    p_notify boolean DEFAULT false
)
RETURNS TABLE (run_id bigint, verdict text)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_ids bigint[];
    v_statuses text[];      -- before
BEGIN
    WITH held AS (
        SELECT run.id, run.status FROM cb_task_runs AS run WHERE run.id = ANY (p_run_ids) ORDER BY run.id FOR NO KEY UPDATE
    )
    SELECT array_agg(held.id), array_agg(held.status) INTO v_ids, v_statuses FROM held;

    UPDATE cb_task_runs AS run
    SET status = CASE run.status WHEN 'queued' THEN 'canceled' ELSE 'canceling' END,
        finished_at = CASE run.status WHEN 'queued' THEN _cb_now() END,
        visible_at = NULL,
        cancel_requested_at = _cb_now(),
        cancel_reason = left(p_reason, 2000),
        canceled_by = left(p_actor, 200)
    WHERE run.id = ANY (v_ids) AND run.status IN ('queued', 'started');

    INSERT INTO cb_events (at, run_kind, run_id, event, from_status, to_status, actor, details)
    SELECT _cb_now(), 'task', held.id, CASE held.status WHEN 'queued' THEN 'canceled' ELSE 'cancel_requested' END,
           held.status, CASE held.status WHEN 'queued' THEN 'canceled' ELSE 'canceling' END,
           coalesce(nullif(left(p_actor, 200), ''), 'client'), jsonb_build_object('reason', left(p_reason, 2000))
    FROM unnest(v_ids, v_statuses) AS held (id, status)
    WHERE held.status IN ('queued', 'started')
    ORDER BY held.id;

    IF p_notify AND 'queued' = ANY (v_statuses) THEN
        PERFORM _cb_tell_finished_tasks(v_ids);
    END IF;
    IF p_notify AND 'started' = ANY (v_statuses) THEN
        PERFORM pg_notify('cb_work', 'cancel');
    END IF;
    RETURN QUERY
    SELECT given.id,
           CASE
               WHEN known.status IS NULL THEN 'unknown'
               WHEN known.status = 'queued' THEN 'canceled'
               WHEN known.status IN ('started', 'canceling') THEN 'canceling'
               ELSE 'finished'
           END
    FROM unnest(p_run_ids) WITH ORDINALITY AS given (id, place)
    LEFT JOIN unnest(v_ids, v_statuses) AS known (id, status) USING (id)
    ORDER BY given.place;
END;
$$;

-- End claimed runs as their handlers asked to: 'canceled', 'locked' or 'stale' for each. Locks: as cb_complete_tasks.
CREATE OR REPLACE FUNCTION cb_cancel_claimed_tasks(
    p_run_ids bigint[],
    p_delivery_tokens uuid[],
    p_reasons text[],
    p_notify boolean DEFAULT false
)
RETURNS TABLE (run_id bigint, verdict text)
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '250ms' AS $$
DECLARE
    v_places bigint[];
BEGIN
    WITH canceled AS (
        UPDATE cb_task_runs AS run
        SET status = 'canceled',
            finished_at = _cb_now(),
            lease_until = NULL,
            cancel_requested_at = _cb_now(),
            cancel_reason = left(claim.reason, 2000),
            canceled_by = 'handler'
        FROM unnest(p_run_ids, p_delivery_tokens, p_reasons)
            WITH ORDINALITY AS claim (id, delivery_token, reason, place)
        WHERE run.id = claim.id AND run.delivery_token = claim.delivery_token AND run.status = 'started'
        RETURNING claim.place
    )
    SELECT array_agg(place) INTO v_places FROM canceled;

    PERFORM _cb_note_task_events(
        'canceled', ARRAY(SELECT p_run_ids[place] FROM unnest(v_places) AS place), 'started', 'canceled', 'handler',
        ARRAY(SELECT p_delivery_tokens[place] FROM unnest(v_places) AS place),
        ARRAY(SELECT jsonb_build_object('reason', left(p_reasons[place], 2000)) FROM unnest(v_places) AS place)
    );
    IF p_notify AND v_places IS NOT NULL THEN
        PERFORM _cb_tell_finished_tasks(p_run_ids);
    END IF;
    RETURN QUERY SELECT * FROM _cb_verdicts(p_run_ids, p_delivery_tokens, v_places, 'canceled');
END;
$$;

-- End those of these claims whose runs are being canceled; with p_spare, not those that may finish. Returns their places.
-- Leaves out what is locked: the caller has locked other runs of the batch before, so waiting now would not be in order.
CREATE OR REPLACE FUNCTION _cb_end_canceling_tasks(p_run_ids bigint[], p_delivery_tokens uuid[], p_spare boolean)
RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_ids bigint[];
    v_places bigint[];
BEGIN
    WITH held AS (
        SELECT run.id, claim.place
        FROM unnest(p_run_ids, p_delivery_tokens) WITH ORDINALITY AS claim (id, delivery_token, place)
        JOIN cb_task_runs AS run ON run.id = claim.id AND run.delivery_token = claim.delivery_token
        WHERE run.status = 'canceling' AND NOT (p_spare AND _cb_may_finish(run.task_id))
        FOR NO KEY UPDATE OF run SKIP LOCKED
    ), canceled AS (
        UPDATE cb_task_runs AS run
        SET status = 'canceled', finished_at = _cb_now(), lease_until = NULL
        FROM held
        WHERE run.id = held.id
        RETURNING run.id, held.place
    )
    SELECT array_agg(canceled.id), array_agg(canceled.place) INTO v_ids, v_places FROM canceled;

    IF v_ids IS NOT NULL THEN
        PERFORM _cb_note_task_events('canceled', v_ids, 'canceling', 'canceled', 'worker');
        PERFORM _cb_tell_finished_tasks(v_ids);
    END IF;
    RETURN coalesce(v_places, ARRAY[]::bigint[]);
END;
$$;

-- The places of those of these claims whose runs are still being canceled: others have them locked.
CREATE OR REPLACE FUNCTION _cb_still_canceling_tasks(p_run_ids bigint[], p_delivery_tokens uuid[])
RETURNS bigint[]
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT ARRAY(
        SELECT claim.place
        FROM unnest(p_run_ids, p_delivery_tokens) WITH ORDINALITY AS claim (id, delivery_token, place)
        JOIN cb_task_runs AS run ON run.id = claim.id AND run.delivery_token = claim.delivery_token
        WHERE run.status = 'canceling'
    )
$$;

-- Whether started runs of this task may finish although they were canceled.
CREATE OR REPLACE FUNCTION _cb_may_finish(p_task_id bigint)
RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT EXISTS (SELECT FROM cb_tasks AS task WHERE task.id = p_task_id AND task.on_cancel = 'finish')
$$;

-- Complete those of these claims whose runs were canceled, but may finish. Returns their places. Leaves out what is locked,
-- as _cb_end_canceling_tasks.
CREATE OR REPLACE FUNCTION _cb_complete_canceling_tasks(p_run_ids bigint[], p_delivery_tokens uuid[], p_outputs jsonb[])
RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_ids bigint[];
    v_places bigint[];
BEGIN
    WITH held AS (
        SELECT run.id, claim.place, claim.output
        FROM unnest(p_run_ids, p_delivery_tokens, p_outputs)
            WITH ORDINALITY AS claim (id, delivery_token, output, place)
        JOIN cb_task_runs AS run ON run.id = claim.id AND run.delivery_token = claim.delivery_token
        WHERE run.status = 'canceling' AND _cb_may_finish(run.task_id)
        FOR NO KEY UPDATE OF run SKIP LOCKED
    ), completed AS (
        UPDATE cb_task_runs AS run
        SET status = 'completed', output = held.output, error = NULL, lease_until = NULL, finished_at = _cb_now()
        FROM held
        WHERE run.id = held.id
        RETURNING run.id, held.place
    )
    SELECT array_agg(completed.id), array_agg(completed.place) INTO v_ids, v_places FROM completed;

    PERFORM _cb_note_task_events('completed', v_ids, 'canceling', 'completed', 'worker');
    RETURN coalesce(v_places, ARRAY[]::bigint[]);
END;
$$;
