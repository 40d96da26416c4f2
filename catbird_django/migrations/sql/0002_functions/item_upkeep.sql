-- What the tick does for items of maps: as `sql/flow_upkeep.sql` for steps.
--
-- Locks: flow runs by id, then step runs by id, then items by id; what is locked is left for the next round.

-- Do one round of upkeep of items. Returns the queues that have due work now that had not before, how many items were moved
-- at the most, and how many had lost their worker.
CREATE OR REPLACE FUNCTION _cb_tick_items(p_limit integer, p_cancel_grace interval)
RETURNS TABLE (queues text[], item_count integer, lost_count integer)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_due record;
    v_lost record;
    v_ended record;
BEGIN
    SELECT * INTO v_due FROM _cb_make_items_due(p_limit);
    SELECT * INTO v_lost FROM _cb_take_back_lost_items(p_limit);
    PERFORM _cb_end_overdue_canceling_items(p_limit, p_cancel_grace);
    SELECT * INTO v_ended FROM _cb_end_items_in_batches(p_limit);
    RETURN QUERY
    SELECT v_due.queues || v_lost.queues || v_ended.queues,
           greatest(v_due.item_count, v_lost.item_count, v_ended.item_count), v_lost.item_count;
END;
$$;

-- Make due the items whose time has come. Returns their queues, and how many they were.
CREATE OR REPLACE FUNCTION _cb_make_items_due(p_limit integer)
RETURNS TABLE (queues text[], item_count integer)
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    RETURN QUERY
    WITH due AS (
        UPDATE cb_items AS item
        SET visible_at = NULL
        WHERE item.id = ANY (ARRAY(
            SELECT waiting.id
            FROM cb_items AS waiting
            WHERE waiting.status = 'queued' AND waiting.visible_at <= _cb_now()
            ORDER BY waiting.visible_at
            LIMIT p_limit
            FOR UPDATE SKIP LOCKED
        ))
        RETURNING item.queue
    )
    SELECT coalesce(array_agg(DISTINCT due.queue), ARRAY[]::text[]), count(*)::integer FROM due;
END;
$$;

-- Take back the items whose lease ran out: a lost delivery is counted, and they are queued again, or have failed when that
-- happened more often than their step allows. Returns the queues that have work because of it, and how many they were.
CREATE OR REPLACE FUNCTION _cb_take_back_lost_items(p_limit integer)
RETURNS TABLE (queues text[], item_count integer)
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_late bigint[];
    v_held bigint[];
    v_back bigint[];
    v_failed bigint[];
BEGIN
    v_late := ARRAY(
        SELECT item.id
        FROM cb_items AS item
        WHERE item.lease_until < _cb_now() AND item.status = 'started'
        ORDER BY item.lease_until
        LIMIT p_limit
    );
    v_held := _cb_hold_flow_runs(ARRAY(SELECT item.flow_run_id FROM cb_items AS item WHERE item.id = ANY (v_late)));
    PERFORM FROM cb_step_runs AS run
    WHERE run.id = ANY (ARRAY(
        SELECT item.step_run_id FROM cb_items AS item WHERE item.id = ANY (v_late) AND item.flow_run_id = ANY (v_held)
    ))
    ORDER BY run.id
    FOR NO KEY UPDATE;
    WITH lost AS (
        SELECT item.id, item.lost_count + 1 AS lost_count
        FROM cb_items AS item
        JOIN cb_step_runs AS run ON run.id = item.step_run_id AND run.status = 'waiting_for_items'
        WHERE item.id = ANY (v_late) AND item.flow_run_id = ANY (v_held)
          AND item.status = 'started' AND item.lease_until < _cb_now()
        ORDER BY item.id
        FOR UPDATE OF item SKIP LOCKED
    ), decided AS (
        SELECT lost.id, lost.lost_count, lost.lost_count > step.max_lost AS is_final
        FROM lost
        JOIN cb_items AS item ON item.id = lost.id
        JOIN cb_steps AS step ON step.id = item.step_id
    ), taken_back AS (
        UPDATE cb_items AS item
        SET status = CASE WHEN decided.is_final THEN 'failed' ELSE 'queued' END,
            error = CASE WHEN decided.is_final THEN _cb_lost_error(decided.lost_count) ELSE item.error END,
            finished_at = CASE WHEN decided.is_final THEN _cb_now() END,
            lost_count = decided.lost_count,
            lease_until = NULL
        FROM decided
        WHERE item.id = decided.id
        RETURNING item.id, item.queue, decided.is_final
    )
    SELECT coalesce(array_agg(DISTINCT taken_back.queue) FILTER (WHERE NOT is_final), ARRAY[]::text[]),
           count(*)::integer,
           array_agg(taken_back.id) FILTER (WHERE NOT is_final),
           array_agg(taken_back.id) FILTER (WHERE is_final)
    INTO queues, item_count, v_back, v_failed
    FROM taken_back;

    PERFORM _cb_note_events('item', 'lost', v_back, 'started', 'queued', 'tick');
    IF v_failed IS NOT NULL THEN
        PERFORM _cb_note_events('item', 'lost', v_failed, 'started', 'failed', 'tick');
        queues := queues || _cb_count_items(ARRAY[]::bigint[], v_failed);
    END IF;
    RETURN NEXT;
END;
$$;

-- End the items that are being canceled and whose worker was lost, or whose handler did not stop within the grace, and the
-- runs of which nothing lives any more.
CREATE OR REPLACE FUNCTION _cb_end_overdue_canceling_items(p_limit integer, p_grace interval)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_overdue bigint[];
    v_held bigint[];
    v_ended bigint[];
BEGIN
    v_overdue := ARRAY(
        SELECT item.id
        FROM cb_items AS item
        WHERE item.lease_until IS NOT NULL AND item.status = 'canceling'
          AND (
              item.lease_until < _cb_now()
              OR (item.cancel_requested_at < _cb_now() - p_grace AND NOT _cb_step_may_finish(item.step_id))
          )
        ORDER BY item.lease_until
        LIMIT p_limit
    );
    IF v_overdue = '{}' THEN
        RETURN;
    END IF;
    v_held := _cb_hold_flow_runs(ARRAY(SELECT item.flow_run_id FROM cb_items AS item WHERE item.id = ANY (v_overdue)));
    WITH ended AS (
        UPDATE cb_items AS item
        SET status = 'canceled', finished_at = _cb_now(), lease_until = NULL
        WHERE item.id = ANY (ARRAY(
            SELECT overdue.id
            FROM cb_items AS overdue
            WHERE overdue.id = ANY (v_overdue) AND overdue.flow_run_id = ANY (v_held) AND overdue.status = 'canceling'
              AND (
                  overdue.lease_until < _cb_now()
                  OR (overdue.cancel_requested_at < _cb_now() - p_grace AND NOT _cb_step_may_finish(overdue.step_id))
              )
            ORDER BY overdue.id
            FOR UPDATE SKIP LOCKED
        ))
        RETURNING item.id
    )
    SELECT array_agg(ended.id) INTO v_ended FROM ended;
    IF v_ended IS NOT NULL THEN
        PERFORM _cb_note_events('item', 'canceled', v_ended, 'canceling', 'canceled', 'tick');
        PERFORM _cb_count_ended_items(v_ended, ARRAY[]::bigint[]);
        PERFORM _cb_end_stopped_flows(v_held);
    END IF;
END;
$$;
