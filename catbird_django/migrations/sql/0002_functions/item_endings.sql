-- How items end other than by themselves: with the run that is ended, or with the step that has given up on them.
--
-- What a worker holds is never much, so that is seen to at once: void when the run has failed or completed early, told to
-- stop when it is canceled. What is still queued may be a million: more than a batch of it is left to the tick, which goes
-- through the map from its last item to its first, a range of places at a time (R8a). The run is 'failing', 'completing' or
-- 'canceling' meanwhile.
--
-- A claim waits for nobody, so one may be under way that still sees the map wait, and is committed after its end was decided.
-- Hence what is queued is ended first, which waits for such claims, and then what is held.
--
-- Locks: step runs by id, then items by id, of flow runs that the caller has locked.

-- More queued items than this are ended in batches.
CREATE OR REPLACE FUNCTION _cb_end_batch()
RETURNS integer
LANGUAGE sql IMMUTABLE SET search_path FROM CURRENT AS $$
    SELECT 1000
$$;

-- End the items of these runs, whose outcome has been decided. Held ones become 'canceled', or 'canceling' when their
-- handlers are to be told; queued ones end now, or when there are too many in batches.
CREATE OR REPLACE FUNCTION _cb_end_items(p_flow_run_ids bigint[], p_held_become text)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_maps bigint[];
    v_queued_count bigint;
BEGIN
    SELECT array_agg(run.id),
           sum(run.items_spawned - run.items_completed - run.items_failed - run.items_canceled)
    INTO v_maps, v_queued_count
    FROM cb_step_runs AS run
    WHERE run.flow_run_id = ANY (p_flow_run_ids)
      AND run.items_spawned > run.items_completed + run.items_failed + run.items_canceled;
    IF v_maps IS NULL THEN
        RETURN;
    END IF;

    IF v_queued_count > _cb_end_batch() THEN
        UPDATE cb_step_runs AS run SET items_ended_from = run.items_spawned WHERE run.id = ANY (v_maps);
        PERFORM cb_wake_tick();
    ELSE
        PERFORM _cb_cancel_queued_items(v_maps);
    END IF;
    -- Last, because whoever cancels queued items has waited for the claims that were just being made of them.
    PERFORM _cb_end_held_items(v_maps, p_held_become);
END;
$$;

-- Cancel all live items of these steps, at once: their runs go on without them.
CREATE OR REPLACE FUNCTION _cb_cancel_items(p_step_run_ids bigint[])
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM _cb_cancel_queued_items(p_step_run_ids);
    PERFORM _cb_end_held_items(p_step_run_ids, 'canceled');
END;
$$;

-- End what workers hold of these maps: 'canceled' at once, or 'canceling' until the handler has stopped.
CREATE OR REPLACE FUNCTION _cb_end_held_items(p_step_run_ids bigint[], p_become text)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_ids bigint[];
    v_statuses text[];      -- before
BEGIN
    -- By the index of what is held, which is short, and not by that of the map, which may be long.
    WITH leased AS MATERIALIZED (
        SELECT item.id, item.step_run_id FROM cb_items AS item WHERE item.lease_until IS NOT NULL
    ), held AS (
        SELECT item.id, item.status
        FROM leased
        JOIN cb_items AS item ON item.id = leased.id
        WHERE leased.step_run_id = ANY (p_step_run_ids)
          AND (item.status = 'started' OR (item.status = 'canceling' AND p_become = 'canceled'))
        ORDER BY item.id
        FOR NO KEY UPDATE OF item
    )
    SELECT array_agg(held.id), array_agg(held.status) INTO v_ids, v_statuses FROM held;
    IF v_ids IS NULL THEN
        RETURN;
    END IF;

    UPDATE cb_items AS item
    SET status = p_become,
        cancel_requested_at = coalesce(item.cancel_requested_at, _cb_now()),
        lease_until = CASE WHEN p_become = 'canceling' THEN item.lease_until END,
        finished_at = CASE WHEN p_become = 'canceled' THEN _cb_now() END
    WHERE item.id = ANY (v_ids);
    IF p_become = 'canceled' THEN
        PERFORM _cb_count_ended_items(v_ids, ARRAY[]::bigint[]);
    END IF;

    INSERT INTO cb_events (at, run_kind, run_id, event, from_status, to_status, actor)
    SELECT _cb_now(), 'item', held.id, CASE p_become WHEN 'canceling' THEN 'cancel_requested' ELSE 'canceled' END,
           held.status, p_become, 'engine'
    FROM unnest(v_ids, v_statuses) AS held (id, status)
    ORDER BY held.id;
    PERFORM pg_notify('cb_work', 'cancel');
END;
$$;

-- End what workers hold of these maps, none of which waits for items any more: what was claimed while that was decided.
CREATE OR REPLACE FUNCTION _cb_end_overlooked_items(p_step_run_ids bigint[])
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_to_tell bigint[];
BEGIN
    v_to_tell := ARRAY(
        SELECT run.id
        FROM cb_step_runs AS run
        JOIN cb_flow_runs AS flow_run ON flow_run.id = run.flow_run_id AND flow_run.status = 'canceling'
        WHERE run.id = ANY (p_step_run_ids)
    );
    PERFORM _cb_end_held_items(v_to_tell, 'canceling');
    PERFORM _cb_end_held_items(
        ARRAY(SELECT id FROM unnest(p_step_run_ids) AS id WHERE id <> ALL (v_to_tell)), 'canceled'
    );
END;
$$;

-- Cancel the items of these maps that are queued. They have no event each: nobody has begun them.
CREATE OR REPLACE FUNCTION _cb_cancel_queued_items(p_step_run_ids bigint[])
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    WITH canceled AS (
        UPDATE cb_items AS item
        SET status = 'canceled', finished_at = _cb_now(), visible_at = NULL
        WHERE item.step_run_id = ANY (p_step_run_ids) AND item.status = 'queued'
        RETURNING item.step_run_id
    ), counted AS (
        SELECT canceled.step_run_id, count(*)::integer AS canceled_count FROM canceled GROUP BY canceled.step_run_id
    )
    UPDATE cb_step_runs AS run
    SET items_canceled = run.items_canceled + counted.canceled_count
    FROM counted
    WHERE run.id = counted.step_run_id;
END;
$$;

-- Count items that have ended although their steps no longer wait for them: canceled, or completed all the same.
CREATE OR REPLACE FUNCTION _cb_count_ended_items(p_canceled_ids bigint[], p_completed_ids bigint[])
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    WITH counted AS (
        SELECT item.step_run_id, count(*) FILTER (WHERE item.id = ANY (p_canceled_ids))::integer AS canceled,
               count(*) FILTER (WHERE item.id = ANY (p_completed_ids))::integer AS completed
        FROM cb_items AS item
        WHERE item.id = ANY (p_canceled_ids || p_completed_ids)
        GROUP BY item.step_run_id
    )
    UPDATE cb_step_runs AS run
    SET items_canceled = run.items_canceled + counted.canceled, items_completed = run.items_completed + counted.completed
    FROM counted
    WHERE run.id = counted.step_run_id;
END;
$$;

-- End another batch of queued items of runs that are being ended, and the runs of which nothing lives any more. Returns the
-- queues of what was queued because of it, and how many items were looked at: p_limit of them when there are more.
CREATE OR REPLACE FUNCTION _cb_end_items_in_batches(p_limit integer)
RETURNS TABLE (queues text[], item_count integer)
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_ending bigint[];
    v_held bigint[];
    v_maps bigint[];
    v_size integer;
BEGIN
    v_ending := ARRAY(
        SELECT run.id
        FROM cb_flow_runs AS run
        WHERE run.ending_since IS NOT NULL AND run.finished_at IS NULL
          AND EXISTS (
              SELECT FROM cb_step_runs AS map WHERE map.flow_run_id = run.id AND map.items_ended_from > 0
          )
        ORDER BY run.ending_since
        LIMIT 10
    );
    v_held := _cb_hold_flow_runs(v_ending);
    queues := ARRAY[]::text[];
    item_count := 0;
    IF v_held = '{}' THEN
        RETURN NEXT;
        RETURN;
    END IF;

    v_maps := ARRAY(
        SELECT map.id FROM cb_step_runs AS map WHERE map.flow_run_id = ANY (v_held) AND map.items_ended_from > 0
    );
    v_size := greatest(1, p_limit / greatest(1, cardinality(v_maps)));
    WITH range AS (
        SELECT map.id, greatest(0, map.items_ended_from - v_size) AS first_index, map.items_ended_from AS end_index
        FROM cb_step_runs AS map
        WHERE map.id = ANY (v_maps)
        ORDER BY map.id
        FOR NO KEY UPDATE
    ), canceled AS (
        UPDATE cb_items AS item
        SET status = 'canceled', finished_at = _cb_now(), visible_at = NULL
        FROM range
        WHERE item.step_run_id = range.id AND item.index >= range.first_index AND item.index < range.end_index
          AND item.status = 'queued'
        RETURNING item.step_run_id
    ), ended AS (
        UPDATE cb_step_runs AS run
        SET items_ended_from = range.first_index,
            items_canceled = run.items_canceled
                + (SELECT count(*) FROM canceled WHERE canceled.step_run_id = range.id)::integer
        FROM range
        WHERE run.id = range.id
        RETURNING range.end_index - range.first_index AS size, range.first_index
    )
    SELECT CASE
               WHEN bool_or(ended.first_index > 0) OR cardinality(v_ending) = 10 THEN p_limit
               ELSE coalesce(sum(ended.size), 0)
           END
    INTO item_count
    FROM ended;
    PERFORM _cb_end_overlooked_items(v_maps);

    queues := _cb_end_stopped_flows(v_held);
    RETURN NEXT;
END;
$$;

-- End those of these claims whose items are being canceled, and their runs with the last of them. Returns their places.
CREATE OR REPLACE FUNCTION _cb_end_canceling_items(p_item_ids bigint[], p_delivery_tokens uuid[])
RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_ids bigint[];
    v_places bigint[];
    v_flow_run_ids bigint[];
BEGIN
    WITH canceled AS (
        UPDATE cb_items AS item
        SET status = 'canceled', finished_at = _cb_now(), lease_until = NULL
        FROM unnest(p_item_ids, p_delivery_tokens) WITH ORDINALITY AS claim (id, delivery_token, place)
        WHERE item.id = claim.id AND item.delivery_token = claim.delivery_token AND item.status = 'canceling'
        RETURNING item.id, item.flow_run_id, claim.place
    )
    SELECT array_agg(canceled.id), array_agg(canceled.place), array_agg(DISTINCT canceled.flow_run_id)
    INTO v_ids, v_places, v_flow_run_ids
    FROM canceled;

    IF v_ids IS NOT NULL THEN
        PERFORM _cb_note_events('item', 'canceled', v_ids, 'canceling', 'canceled', 'worker');
        PERFORM _cb_count_ended_items(v_ids, ARRAY[]::bigint[]);
        PERFORM _cb_end_stopped_flows(v_flow_run_ids);
    END IF;
    RETURN coalesce(v_places, ARRAY[]::bigint[]);
END;
$$;

-- Complete those of these claims whose items were canceled, but may finish. Returns their places.
CREATE OR REPLACE FUNCTION _cb_complete_canceling_items(p_item_ids bigint[], p_delivery_tokens uuid[], p_outputs jsonb[])
RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_ids bigint[];
    v_places bigint[];
    v_flow_run_ids bigint[];
BEGIN
    WITH completed AS (
        UPDATE cb_items AS item
        SET status = 'completed', output = claim.output, error = NULL, lease_until = NULL, finished_at = _cb_now()
        FROM unnest(p_item_ids, p_delivery_tokens, p_outputs)
            WITH ORDINALITY AS claim (id, delivery_token, output, place)
        WHERE item.id = claim.id AND item.delivery_token = claim.delivery_token AND item.status = 'canceling'
          AND _cb_step_may_finish(item.step_id)
        RETURNING item.id, item.flow_run_id, claim.place
    )
    SELECT array_agg(completed.id), array_agg(completed.place), array_agg(DISTINCT completed.flow_run_id)
    INTO v_ids, v_places, v_flow_run_ids
    FROM completed;

    IF v_ids IS NOT NULL THEN
        PERFORM _cb_note_events('item', 'completed', v_ids, 'canceling', 'completed', 'worker');
        PERFORM _cb_count_ended_items(ARRAY[]::bigint[], v_ids);
        PERFORM _cb_end_stopped_flows(v_flow_run_ids);
    END IF;
    RETURN coalesce(v_places, ARRAY[]::bigint[]);
END;
$$;

-- Cancel the runs of these claimed items, as their handlers asked to: 'canceled' or 'stale' for each.
CREATE OR REPLACE FUNCTION cb_cancel_claimed_items(
    p_item_ids bigint[],
    p_delivery_tokens uuid[],
    p_reasons text[],
    p_notify boolean DEFAULT false
)
RETURNS TABLE (run_id bigint, verdict text)
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '250ms' AS $$
DECLARE
    v_ids bigint[];
    v_places bigint[];
BEGIN
    PERFORM _cb_lock_steps_of_items(p_item_ids);
    WITH held AS (
        SELECT item.id, claim.place
        FROM unnest(p_item_ids, p_delivery_tokens) WITH ORDINALITY AS claim (id, delivery_token, place)
        JOIN cb_items AS item
            ON item.id = claim.id AND item.delivery_token = claim.delivery_token AND item.status = 'started'
        ORDER BY item.id
        FOR NO KEY UPDATE OF item
    ), canceled AS (
        UPDATE cb_items AS item
        SET status = 'canceled', finished_at = _cb_now(), lease_until = NULL, cancel_requested_at = _cb_now()
        FROM held
        WHERE item.id = held.id
        RETURNING item.id, held.place
    )
    SELECT coalesce(array_agg(canceled.id), ARRAY[]::bigint[]), coalesce(array_agg(canceled.place), ARRAY[]::bigint[])
    INTO v_ids, v_places
    FROM canceled;
    PERFORM _cb_note_events(
        'item', 'canceled', ARRAY(SELECT p_item_ids[place] FROM unnest(v_places) AS place), 'started', 'canceled',
        'handler', ARRAY(SELECT p_delivery_tokens[place] FROM unnest(v_places) AS place)
    );
    PERFORM _cb_count_ended_items(v_ids, ARRAY[]::bigint[]);
    PERFORM _cb_cancel_flows_of(
        ARRAY(
            SELECT item.flow_run_id
            FROM unnest(v_places) WITH ORDINALITY AS given (place, nth)
            JOIN cb_items AS item ON item.id = p_item_ids[given.place]
            ORDER BY given.nth
        ),
        ARRAY(SELECT p_reasons[given.place] FROM unnest(v_places) WITH ORDINALITY AS given (place, nth) ORDER BY given.nth)
    );
    RETURN QUERY
    SELECT * FROM _cb_settle_items_end(p_item_ids, p_delivery_tokens, v_places, 'canceled', ARRAY[]::text[], p_notify);
END;
$$;
