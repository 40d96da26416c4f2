-- Cancel flows: what waits or is queued ends at once, what runs when its handler has been told and has stopped (F17).
--
-- Until then the run is 'canceling': nothing new is queued in it, and what its handlers report is dropped, except where a
-- step says that it may finish. It is over when the last of them has reported, was lost, or has used up the grace
-- (`sql/flow_upkeep.sql`). A run that has ended stays as it is. Expiring is the same, with another outcome.
--
-- Locks: flow runs by id, then step runs by id, then items by id.

-- Cancel these runs, for a reason, on behalf of somebody. 'canceled', 'canceling', 'finished' (it had ended before) or
-- 'unknown' for each. Asking again changes nothing: the first reason stays. Joins the caller's transaction.
CREATE OR REPLACE FUNCTION cb_cancel_flows(
    p_run_ids bigint[],
    p_reason text DEFAULT '',
    p_actor text DEFAULT '',
    p_notify boolean DEFAULT false
)
RETURNS TABLE (run_id bigint, verdict text)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_ids bigint[];
    v_live bigint[];
BEGIN
    WITH held AS (
        SELECT run.id, run.status FROM cb_flow_runs AS run WHERE run.id = ANY (p_run_ids) ORDER BY run.id FOR NO KEY UPDATE
    )
    SELECT array_agg(held.id), array_agg(held.id) FILTER (WHERE held.status = 'started') INTO v_ids, v_live FROM held;
    IF v_live IS NOT NULL THEN
        PERFORM _cb_stop_flows(v_live, 'canceled', p_reason, coalesce(nullif(p_actor, ''), 'client'));
    END IF;

    RETURN QUERY
    SELECT given.id,
           CASE
               WHEN run.id IS NULL THEN 'unknown'
               WHEN run.id = ANY (v_live) AND run.status = 'canceled' THEN 'canceled'
               WHEN run.status IN ('canceling', 'failing', 'completing') THEN 'canceling'
               ELSE 'finished'
           END
    FROM unnest(p_run_ids) WITH ORDINALITY AS given (id, place)
    LEFT JOIN cb_flow_runs AS run ON run.id = given.id
    ORDER BY given.place;
END;
$$;

-- Stop these started runs, which the caller has locked: they will be 'canceled' or 'expired'.
CREATE OR REPLACE FUNCTION _cb_stop_flows(p_flow_run_ids bigint[], p_outcome text, p_reason text, p_actor text)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_ids bigint[];
    v_statuses text[];      -- before
BEGIN
    UPDATE cb_flow_runs
    SET status = 'canceling', outcome = p_outcome, ending_since = _cb_now(), cancel_reason = left(p_reason, 2000),
        canceled_by = left(p_actor, 200)
    WHERE id = ANY (p_flow_run_ids);
    PERFORM _cb_note_events(
        'flow', 'cancel_requested', p_flow_run_ids, 'started', 'canceling', left(p_actor, 200), NULL,
        array_fill(
            jsonb_build_object('reason', left(p_reason, 2000), 'outcome', p_outcome), ARRAY[cardinality(p_flow_run_ids)]
        )
    );

    WITH live AS (
        SELECT run.id, run.status
        FROM cb_step_runs AS run
        WHERE run.flow_run_id = ANY (p_flow_run_ids)
          AND run.status NOT IN ('completed', 'failed', 'skipped', 'canceled', 'expired') AND run.status <> 'canceling'
        ORDER BY run.id
        FOR NO KEY UPDATE
    )
    SELECT array_agg(live.id), array_agg(live.status) INTO v_ids, v_statuses FROM live;
    UPDATE cb_step_runs AS run
    SET status = CASE run.status WHEN 'started' THEN 'canceling' ELSE 'canceled' END,
        finished_at = CASE WHEN run.status <> 'started' THEN _cb_now() END,
        cancel_requested_at = _cb_now(),
        visible_at = NULL
    WHERE run.id = ANY (v_ids);
    INSERT INTO cb_events (at, run_kind, run_id, event, from_status, to_status, actor)
    SELECT _cb_now(), 'step', live.id, CASE live.status WHEN 'started' THEN 'cancel_requested' ELSE 'canceled' END,
           live.status, CASE live.status WHEN 'started' THEN 'canceling' ELSE 'canceled' END, left(p_actor, 200)
    FROM unnest(v_ids, v_statuses) AS live (id, status)
    ORDER BY live.id;

    IF 'started' = ANY (v_statuses) THEN
        PERFORM pg_notify('cb_work', 'cancel');
    END IF;
    PERFORM _cb_end_items(p_flow_run_ids, 'canceling');
    PERFORM _cb_end_stopped_flows(p_flow_run_ids);
END;
$$;

-- Cancel the runs of these claimed steps, as their handlers asked to: 'canceled' or 'stale' for each.
CREATE OR REPLACE FUNCTION cb_cancel_claimed_steps(
    p_step_run_ids bigint[],
    p_delivery_tokens uuid[],
    p_reasons text[],
    p_notify boolean DEFAULT false
)
RETURNS TABLE (run_id bigint, verdict text)
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '250ms' AS $$
DECLARE
    v_places bigint[];
BEGIN
    PERFORM _cb_lock_flow_runs_of(p_step_run_ids);
    WITH held AS (
        SELECT run.id, claim.place
        FROM unnest(p_step_run_ids, p_delivery_tokens) WITH ORDINALITY AS claim (id, delivery_token, place)
        JOIN cb_step_runs AS run
            ON run.id = claim.id AND run.delivery_token = claim.delivery_token AND run.status = 'started'
        ORDER BY run.id
        FOR NO KEY UPDATE OF run
    ), canceled AS (
        UPDATE cb_step_runs AS run
        SET status = 'canceled', finished_at = _cb_now(), lease_until = NULL, cancel_requested_at = _cb_now()
        FROM held
        WHERE run.id = held.id
        RETURNING held.place
    )
    SELECT coalesce(array_agg(canceled.place), ARRAY[]::bigint[]) INTO v_places FROM canceled;
    PERFORM _cb_note_events(
        'step', 'canceled', ARRAY(SELECT p_step_run_ids[place] FROM unnest(v_places) AS place), 'started', 'canceled',
        'handler', ARRAY(SELECT p_delivery_tokens[place] FROM unnest(v_places) AS place)
    );

    PERFORM _cb_cancel_flows_of(
        ARRAY(
            SELECT run.flow_run_id
            FROM unnest(v_places) WITH ORDINALITY AS given (place, nth)
            JOIN cb_step_runs AS run ON run.id = p_step_run_ids[given.place]
            ORDER BY given.nth
        ),
        ARRAY(SELECT p_reasons[given.place] FROM unnest(v_places) WITH ORDINALITY AS given (place, nth) ORDER BY given.nth)
    );
    RETURN QUERY
    SELECT * FROM _cb_settle_steps_end(
        p_step_run_ids, p_delivery_tokens, v_places, 'canceled', ARRAY[]::text[], p_notify
    );
END;
$$;

-- Cancel these runs, each for the first of its reasons, as handlers asked to.
CREATE OR REPLACE FUNCTION _cb_cancel_flows_of(p_flow_run_ids bigint[], p_reasons text[])
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_flow record;
BEGIN
    -- One by one: each run has a reason of its own, and hardly ever are there two at once.
    FOR v_flow IN
        SELECT DISTINCT ON (flow_run.id) flow_run.id, given.reason
        FROM unnest(p_flow_run_ids, p_reasons) WITH ORDINALITY AS given (id, reason, place)
        JOIN cb_flow_runs AS flow_run ON flow_run.id = given.id AND flow_run.status = 'started'
        ORDER BY flow_run.id, given.place
    LOOP
        PERFORM _cb_stop_flows(ARRAY[v_flow.id], 'canceled', v_flow.reason, 'handler');
    END LOOP;
END;
$$;

-- End those of these claims whose steps are being canceled, and their runs with the last of them. Returns their places.
CREATE OR REPLACE FUNCTION _cb_end_canceling_steps(p_step_run_ids bigint[], p_delivery_tokens uuid[])
RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_ids bigint[];
    v_places bigint[];
    v_flow_run_ids bigint[];
BEGIN
    WITH canceled AS (
        UPDATE cb_step_runs AS run
        SET status = 'canceled', finished_at = _cb_now(), lease_until = NULL
        FROM unnest(p_step_run_ids, p_delivery_tokens) WITH ORDINALITY AS claim (id, delivery_token, place)
        WHERE run.id = claim.id AND run.delivery_token = claim.delivery_token AND run.status = 'canceling'
        RETURNING run.id, run.flow_run_id, claim.place
    )
    SELECT array_agg(canceled.id), array_agg(canceled.place), array_agg(DISTINCT canceled.flow_run_id)
    INTO v_ids, v_places, v_flow_run_ids
    FROM canceled;

    IF v_ids IS NOT NULL THEN
        PERFORM _cb_note_events('step', 'canceled', v_ids, 'canceling', 'canceled', 'worker');
        PERFORM _cb_end_stopped_flows(v_flow_run_ids);
    END IF;
    RETURN coalesce(v_places, ARRAY[]::bigint[]);
END;
$$;

-- Whether a step that has been started may finish although its run was canceled.
CREATE OR REPLACE FUNCTION _cb_step_may_finish(p_step_id bigint)
RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT EXISTS (SELECT FROM cb_steps AS step WHERE step.id = p_step_id AND step.on_cancel = 'finish')
$$;

-- Complete those of these claims whose steps were canceled, but may finish. Returns their places.
CREATE OR REPLACE FUNCTION _cb_complete_canceling_steps(p_step_run_ids bigint[], p_delivery_tokens uuid[], p_outputs jsonb[])
RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_ids bigint[];
    v_places bigint[];
    v_flow_run_ids bigint[];
BEGIN
    WITH completed AS (
        UPDATE cb_step_runs AS run
        SET status = 'completed', output = claim.output, error = NULL, lease_until = NULL, finished_at = _cb_now()
        FROM unnest(p_step_run_ids, p_delivery_tokens, p_outputs)
            WITH ORDINALITY AS claim (id, delivery_token, output, place)
        WHERE run.id = claim.id AND run.delivery_token = claim.delivery_token AND run.status = 'canceling'
          AND _cb_step_may_finish(run.step_id)
        RETURNING run.id, run.flow_run_id, claim.place
    )
    SELECT array_agg(completed.id), array_agg(completed.place), array_agg(DISTINCT completed.flow_run_id)
    INTO v_ids, v_places, v_flow_run_ids
    FROM completed;

    IF v_ids IS NOT NULL THEN
        PERFORM _cb_note_events('step', 'completed', v_ids, 'canceling', 'completed', 'worker');
        PERFORM _cb_end_stopped_flows(v_flow_run_ids);
    END IF;
    RETURN coalesce(v_places, ARRAY[]::bigint[]);
END;
$$;
