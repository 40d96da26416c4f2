-- What the tick does for flows: steps and items made due, lost ones taken back, runs ended that took too long.
--
-- As in `sql/tick.sql`, each function is bounded, skips what is locked, and can be repeated: dying anywhere in it loses
-- nothing.
--
-- Locks: flow runs by id, then step runs by id; what is locked is left for the next round.

-- Do one round of upkeep of flows. Returns the queues that have due work now that had not before, in how long the next
-- moment is that we know of, how many runs were moved at the most, and how many steps had lost their worker.
CREATE OR REPLACE FUNCTION _cb_tick_flows(p_limit integer, p_cancel_grace interval)
RETURNS TABLE (queues text[], next_due_in interval, run_count integer, lost_count integer)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_due record;
    v_lost record;
    v_overdue record;
    v_items record;
    v_signals record;
    v_expired integer;
BEGIN
    v_expired := _cb_expire_flows(p_limit);
    SELECT * INTO v_overdue FROM _cb_fail_overdue_flows(p_limit);
    SELECT * INTO v_due FROM _cb_make_steps_due(p_limit);
    SELECT * INTO v_lost FROM _cb_take_back_lost_steps(p_limit);
    PERFORM _cb_end_overdue_canceling_steps(p_limit, p_cancel_grace);
    SELECT * INTO v_items FROM _cb_tick_items(p_limit, p_cancel_grace);
    SELECT * INTO v_signals FROM _cb_end_waits_for_signals(p_limit);

    queues := v_due.queues || v_lost.queues || v_overdue.queues || v_items.queues || v_signals.queues;
    run_count := greatest(
        v_expired, v_overdue.run_count, v_due.run_count, v_lost.run_count, v_items.item_count, v_signals.run_count
    );
    lost_count := v_lost.run_count + v_items.lost_count;
    next_due_in := least(
        (SELECT min(run.visible_at) FROM cb_step_runs AS run WHERE run.status = 'queued' AND run.visible_at IS NOT NULL),
        (
            SELECT min(item.visible_at) FROM cb_items AS item
            WHERE item.status = 'queued' AND item.visible_at < 'infinity'
        ),
        (SELECT min(run.deadline_at) FROM cb_step_runs AS run WHERE run.deadline_at IS NOT NULL AND run.finished_at IS NULL),
        (
            SELECT min(run.signal_due_at)
            FROM cb_step_runs AS run
            WHERE run.status = 'waiting_for_signal' AND run.signal_due_at IS NOT NULL AND run.signal_overdue_at IS NULL
        ),
        (
            SELECT min(run.expires_at)
            FROM cb_flow_runs AS run
            WHERE run.expires_at IS NOT NULL AND run.finished_at IS NULL AND run.status = 'started'
        ),
        (
            SELECT min(run.deadline_at)
            FROM cb_flow_runs AS run
            WHERE run.deadline_at IS NOT NULL AND run.finished_at IS NULL AND run.status = 'started'
        )
    ) - _cb_now();
    RETURN NEXT;
END;
$$;

-- Make due the steps whose time has come. Returns their queues, and how many they were.
CREATE OR REPLACE FUNCTION _cb_make_steps_due(p_limit integer)
RETURNS TABLE (queues text[], run_count integer)
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    RETURN QUERY
    WITH due AS (
        UPDATE cb_step_runs AS run
        SET visible_at = NULL
        WHERE run.id = ANY (ARRAY(
            SELECT waiting.id
            FROM cb_step_runs AS waiting
            WHERE waiting.status = 'queued' AND waiting.visible_at <= _cb_now()
            ORDER BY waiting.visible_at
            LIMIT p_limit
            FOR UPDATE SKIP LOCKED
        ))
        RETURNING run.queue
    )
    SELECT coalesce(array_agg(DISTINCT due.queue), ARRAY[]::text[]), count(*)::integer FROM due;
END;
$$;

-- Take back the steps whose lease ran out: a lost delivery is counted, and they are queued again, or have failed, and their
-- runs with them, when that happened more often than the step allows. Returns the queues that have work because of it, and
-- how many steps they were.
CREATE OR REPLACE FUNCTION _cb_take_back_lost_steps(p_limit integer)
RETURNS TABLE (queues text[], run_count integer)
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_held bigint[];
    v_back bigint[];
    v_failed bigint[];
BEGIN
    v_held := _cb_hold_flow_runs(ARRAY(
        SELECT run.flow_run_id
        FROM cb_step_runs AS run
        WHERE run.lease_until < _cb_now() AND run.status = 'started'
        ORDER BY run.lease_until
        LIMIT p_limit
    ));
    WITH lost AS (
        SELECT run.id, run.lost_count + 1 AS lost_count
        FROM cb_step_runs AS run
        WHERE run.flow_run_id = ANY (v_held) AND run.status = 'started' AND run.lease_until < _cb_now()
        ORDER BY run.id
        FOR UPDATE SKIP LOCKED
    ), decided AS (
        SELECT lost.id, lost.lost_count, lost.lost_count > step.max_lost AS is_final
        FROM lost
        JOIN cb_step_runs AS run ON run.id = lost.id
        JOIN cb_steps AS step ON step.id = run.step_id
    ), taken_back AS (
        UPDATE cb_step_runs AS run
        SET status = CASE WHEN decided.is_final THEN 'failed' ELSE 'queued' END,
            error = CASE WHEN decided.is_final THEN _cb_lost_error(decided.lost_count) ELSE run.error END,
            finished_at = CASE WHEN decided.is_final THEN _cb_now() END,
            lost_count = decided.lost_count,
            lease_until = NULL
        FROM decided
        WHERE run.id = decided.id
        RETURNING run.id, run.queue, decided.is_final
    )
    SELECT coalesce(array_agg(DISTINCT taken_back.queue) FILTER (WHERE NOT is_final), ARRAY[]::text[]),
           count(*)::integer,
           array_agg(taken_back.id) FILTER (WHERE NOT is_final),
           array_agg(taken_back.id) FILTER (WHERE is_final)
    INTO queues, run_count, v_back, v_failed
    FROM taken_back;

    PERFORM _cb_note_events('step', 'lost', v_back, 'started', 'queued', 'tick');
    IF v_failed IS NOT NULL THEN
        PERFORM _cb_note_events('step', 'lost', v_failed, 'started', 'failed', 'tick');
        queues := queues || _cb_fail_flows_of(v_failed);
    END IF;
    RETURN NEXT;
END;
$$;

-- End the steps that are being canceled and whose worker was lost, or whose handler did not stop within the grace, and
-- the runs of which nothing lives any more.
CREATE OR REPLACE FUNCTION _cb_end_overdue_canceling_steps(p_limit integer, p_grace interval)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_held bigint[];
    v_ended bigint[];
BEGIN
    v_held := _cb_hold_flow_runs(ARRAY(
        SELECT overdue.flow_run_id
        FROM cb_step_runs AS overdue
        WHERE overdue.status = 'canceling'
          AND (
              overdue.lease_until < _cb_now()
              OR (overdue.cancel_requested_at < _cb_now() - p_grace AND NOT _cb_step_may_finish(overdue.step_id))
          )
        ORDER BY overdue.cancel_requested_at
        LIMIT p_limit
    ));
    IF v_held = '{}' THEN
        RETURN;
    END IF;
    WITH ended AS (
        UPDATE cb_step_runs AS run
        SET status = 'canceled', finished_at = _cb_now(), lease_until = NULL
        WHERE run.id = ANY (ARRAY(
            SELECT overdue.id
            FROM cb_step_runs AS overdue
            WHERE overdue.flow_run_id = ANY (v_held) AND overdue.status = 'canceling'
              AND (
                  overdue.lease_until < _cb_now()
                  OR (overdue.cancel_requested_at < _cb_now() - p_grace AND NOT _cb_step_may_finish(overdue.step_id))
              )
            ORDER BY overdue.id
            FOR UPDATE SKIP LOCKED
        ))
        RETURNING run.id
    )
    SELECT array_agg(ended.id) INTO v_ended FROM ended;
    PERFORM _cb_note_events('step', 'canceled', v_ended, 'canceling', 'canceled', 'tick');
    PERFORM _cb_end_stopped_flows(v_held);
END;
$$;

-- Stop the runs that have not ended before they expired. Returns how many they were.
CREATE OR REPLACE FUNCTION _cb_expire_flows(p_limit integer)
RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_held bigint[];
BEGIN
    v_held := _cb_hold_flow_runs(ARRAY(
        SELECT run.id
        FROM cb_flow_runs AS run
        WHERE run.expires_at <= _cb_now() AND run.finished_at IS NULL AND run.status = 'started'
        ORDER BY run.expires_at
        LIMIT p_limit
    ), ARRAY['started']);
    IF v_held <> '{}' THEN
        PERFORM _cb_stop_flows(v_held, 'expired', 'not ended in time', 'tick');
    END IF;
    RETURN cardinality(v_held);
END;
$$;

-- Fail the runs that have not ended by their deadline, or of which a step has not; what was being canceled is canceled.
-- Returns the queues that have work because of it, and how many runs they were.
CREATE OR REPLACE FUNCTION _cb_fail_overdue_flows(p_limit integer)
RETURNS TABLE (queues text[], run_count integer)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_held bigint[];
    v_steps bigint[];
    v_flows bigint[];
BEGIN
    queues := ARRAY[]::text[];
    v_held := _cb_hold_flow_runs(ARRAY(
        SELECT run.flow_run_id
        FROM cb_step_runs AS run
        WHERE run.deadline_at <= _cb_now() AND run.finished_at IS NULL
        ORDER BY run.deadline_at
        LIMIT p_limit
    ));
    IF v_held <> '{}' THEN
        WITH late AS (
            SELECT run.id, run.status, run.status = 'canceling' AS is_canceling
            FROM cb_step_runs AS run
            WHERE run.flow_run_id = ANY (v_held) AND run.deadline_at <= _cb_now() AND run.finished_at IS NULL
            ORDER BY run.id
            FOR NO KEY UPDATE
        ), ended AS (
            UPDATE cb_step_runs AS run
            SET status = CASE WHEN late.is_canceling THEN 'canceled' ELSE 'failed' END,
                error = CASE WHEN late.is_canceling THEN run.error ELSE _cb_deadline_error() END,
                finished_at = _cb_now(), lease_until = NULL, visible_at = NULL
            FROM late
            WHERE run.id = late.id
            RETURNING run.id, late.status AS was, run.status AS becomes
        ), noted AS (
            INSERT INTO cb_events (at, run_kind, run_id, event, from_status, to_status, actor)
            SELECT _cb_now(), 'step', ended.id, ended.becomes, ended.was, ended.becomes, 'tick' FROM ended ORDER BY ended.id
        )
        SELECT array_agg(ended.id) FILTER (WHERE ended.becomes = 'failed') INTO v_steps FROM ended;
        queues := _cb_fail_flows_of(v_steps);
        PERFORM _cb_end_stopped_flows(v_held);
    END IF;

    v_flows := _cb_hold_flow_runs(ARRAY(
        SELECT run.id
        FROM cb_flow_runs AS run
        WHERE run.deadline_at <= _cb_now() AND run.finished_at IS NULL AND run.status = 'started'
        ORDER BY run.deadline_at
        LIMIT p_limit
    ), ARRAY['started']);
    IF v_flows <> '{}' THEN
        UPDATE cb_flow_runs AS run
        SET status = 'failing', outcome = 'failed', ending_since = _cb_now(), error = _cb_deadline_error()
        WHERE run.id = ANY (v_flows);
        queues := queues || _cb_end_flows(v_flows);
    END IF;
    run_count := cardinality(v_held) + cardinality(v_flows);
    RETURN NEXT;
END;
$$;

-- Lock those of these flow runs that nobody else has locked, by id, and that are in one of these statuses by now. Returns
-- them.
CREATE OR REPLACE FUNCTION _cb_hold_flow_runs(
    p_flow_run_ids bigint[],
    p_statuses text[] DEFAULT ARRAY['started', 'canceling', 'failing', 'completing']
)
RETURNS bigint[]
LANGUAGE sql SET search_path FROM CURRENT AS $$
    SELECT ARRAY(
        SELECT run.id
        FROM cb_flow_runs AS run
        WHERE run.id = ANY (p_flow_run_ids) AND run.status = ANY (p_statuses)
        ORDER BY run.id
        FOR NO KEY UPDATE SKIP LOCKED
    )
$$;

-- What is stored of a run, or a step, that has not ended by its deadline.
CREATE OR REPLACE FUNCTION _cb_deadline_error()
RETURNS jsonb
LANGUAGE sql IMMUTABLE SET search_path FROM CURRENT AS $$
    SELECT jsonb_build_object('type', 'DeadlineExceeded', 'message', 'deadline: not ended in time', 'traceback', '')
$$;
