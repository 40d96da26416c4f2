-- Cancel: a queued run ends at once, a started one when its handler has been told and has stopped.
--
-- Between the two it is 'canceling'. Its worker learns of it at the next renewal of its lease, which a notification
-- brings forward. Whatever the handler reports then, the run is canceled: a result that arrives meanwhile is dropped. It
-- also ends when its worker is lost, or when the grace is over (`sql/tick.sql`). A run that has ended stays as it is.
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

-- End claimed runs as their handlers asked to: 'canceled' or 'stale' for each. Locks: task runs, in the order given.
CREATE OR REPLACE FUNCTION cb_cancel_claimed_tasks(
    p_run_ids bigint[],
    p_delivery_tokens uuid[],
    p_reasons text[],
    p_notify boolean DEFAULT false
)
RETURNS TABLE (run_id bigint, verdict text)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
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

    IF p_notify AND v_places IS NOT NULL THEN
        PERFORM _cb_tell_finished_tasks(p_run_ids);
    END IF;
    RETURN QUERY SELECT * FROM _cb_verdicts(p_run_ids, p_delivery_tokens, v_places, 'canceled');
END;
$$;

-- End those of these claims whose runs are being canceled. Returns their places.
CREATE OR REPLACE FUNCTION _cb_end_canceling_tasks(p_run_ids bigint[], p_delivery_tokens uuid[])
RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_ids bigint[];
    v_places bigint[];
BEGIN
    WITH canceled AS (
        UPDATE cb_task_runs AS run
        SET status = 'canceled', finished_at = _cb_now(), lease_until = NULL
        FROM unnest(p_run_ids, p_delivery_tokens) WITH ORDINALITY AS claim (id, delivery_token, place)
        WHERE run.id = claim.id AND run.delivery_token = claim.delivery_token AND run.status = 'canceling'
        RETURNING run.id, claim.place
    )
    SELECT array_agg(canceled.id), array_agg(canceled.place) INTO v_ids, v_places FROM canceled;

    IF v_ids IS NOT NULL THEN
        PERFORM _cb_tell_finished_tasks(v_ids);
    END IF;
    RETURN coalesce(v_places, ARRAY[]::bigint[]);
END;
$$;
