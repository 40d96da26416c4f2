-- Items: the elements of the list that a map goes over, each claimed and settled by itself (F14).
--
-- A map is ready when its count is full, like any step. Then its items are made, one row each, and it waits for them; a list
-- without elements completes it at once, and what is no list fails it. Whoever settles the last item completes the step, once,
-- because the counters of the step run are written under its lock. Its output is what its items have returned, in their
-- order: it is read from them, and never stored as a whole (F14a).
--
-- An item is claimed, renewed, given back and settled as a step is (`sql/steps.sql`). It is live only while its step waits for
-- items, except that a run which is being ended may have thousands still queued: those are ended in batches
-- (`sql/item_endings.sql`), and until then a claim that comes upon one only takes it out of its lane.
--
-- Locks: flow runs by id, then step runs by id, then items by id; claims skip what is locked and wait for nobody.

-- Make the items of these maps, which have everything they need, and let them wait for those. Returns the maps that have
-- ended already because there are no elements, those that failed because there is no list, and the queues with due items.
CREATE OR REPLACE FUNCTION _cb_expand_maps(p_step_run_ids bigint[])
RETURNS TABLE (completed bigint[], failed bigint[], queues text[])
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_errors jsonb[];
BEGIN
    SELECT coalesce(array_agg(map.id), ARRAY[]::bigint[]),
           coalesce(array_agg(_cb_no_list_error(map.over, map.list)), ARRAY[]::jsonb[])
    INTO failed, v_errors
    FROM _cb_maps(p_step_run_ids) AS map
    WHERE map.source_run_id IS NULL AND jsonb_typeof(map.list) IS DISTINCT FROM 'array';
    IF failed <> '{}' THEN
        PERFORM _cb_fail_waiting_steps(failed, v_errors);
    END IF;

    WITH counted AS (
        SELECT map.id, map.visible_at,
               coalesce(source.items_spawned, jsonb_array_length(map.list)) AS item_count
        FROM _cb_maps(p_step_run_ids) AS map
        LEFT JOIN cb_step_runs AS source ON source.id = map.source_run_id
        WHERE map.id <> ALL (failed)
    ), begun AS (
        UPDATE cb_step_runs AS run
        SET status = CASE WHEN counted.item_count = 0 THEN 'completed' ELSE 'waiting_for_items' END,
            items_spawned = counted.item_count,
            queued_at = _cb_now(),
            finished_at = CASE WHEN counted.item_count = 0 THEN _cb_now() END
        FROM counted
        WHERE run.id = counted.id
        RETURNING run.id, run.queue, run.items_spawned, counted.visible_at
    )
    SELECT coalesce(array_agg(begun.id) FILTER (WHERE begun.items_spawned = 0), ARRAY[]::bigint[]),
           coalesce(
               array_agg(DISTINCT begun.queue) FILTER (WHERE begun.items_spawned > 0 AND begun.visible_at IS NULL),
               ARRAY[]::text[]
           )
    INTO completed, queues
    FROM begun;

    INSERT INTO cb_items (flow_run_id, step_run_id, step_id, index, priority, queue, visible_at, input, queued_at)
    SELECT map.flow_run_id, map.id, map.step_id, element.place - 1, map.priority, map.queue, map.visible_at,
           element.value, _cb_now()
    FROM _cb_maps(p_step_run_ids) AS map
    CROSS JOIN LATERAL jsonb_array_elements(CASE WHEN jsonb_typeof(map.list) = 'array' THEN map.list END)
        WITH ORDINALITY AS element (value, place)
    WHERE map.source_run_id IS NULL
    ORDER BY map.id, element.place;

    -- A map over a map takes the outputs where they are.
    INSERT INTO cb_items (flow_run_id, step_run_id, step_id, index, priority, queue, visible_at, source_id, queued_at)
    SELECT map.flow_run_id, map.id, map.step_id, source.index, map.priority, map.queue, map.visible_at, source.id, _cb_now()
    FROM _cb_maps(p_step_run_ids) AS map
    JOIN cb_items AS source ON source.step_run_id = map.source_run_id
    ORDER BY map.id, source.index;
    RETURN NEXT;
END;
$$;

-- These maps with what they go over: the list itself, or the step run of the map whose outputs it is; and when their items
-- will be due (NULL: at once).
CREATE OR REPLACE FUNCTION _cb_maps(p_step_run_ids bigint[])
RETURNS TABLE (
    id bigint,
    flow_run_id bigint,
    step_id bigint,
    priority smallint,
    queue text,
    over text,
    source_run_id bigint,
    list jsonb,
    visible_at timestamptz
)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT run.id, run.flow_run_id, run.step_id, run.priority, run.queue, step.over,
           CASE WHEN source.items_spawned IS NOT NULL THEN source.id END,
           CASE WHEN step.over = 'input' THEN flow_run.input ELSE source.output END,
           CASE WHEN due.at > _cb_now() THEN due.at END
    FROM cb_step_runs AS run
    JOIN cb_steps AS step ON step.id = run.step_id
    JOIN cb_flow_runs AS flow_run ON flow_run.id = run.flow_run_id
    LEFT JOIN cb_steps AS source_step ON source_step.flow_id = step.flow_id AND source_step.name = step.over
    LEFT JOIN cb_step_runs AS source ON source.flow_run_id = run.flow_run_id AND source.step_id = source_step.id
    CROSS JOIN LATERAL (
        SELECT _cb_due_at(step.dependency_count, flow_run.run_at, step.delay) AS at
    ) AS due
    WHERE run.id = ANY (p_step_run_ids)
$$;

-- What is stored of a map that is given no list.
CREATE OR REPLACE FUNCTION _cb_no_list_error(p_over text, p_given jsonb)
RETURNS jsonb
LANGUAGE sql IMMUTABLE SET search_path FROM CURRENT AS $$
    SELECT jsonb_build_object(
        'type', 'NotAList',
        'message', format(
            '%s is no list, but %s: a map has nothing to go over',
            CASE p_over WHEN 'input' THEN 'the input' ELSE format('the output of %s', p_over) END,
            coalesce(jsonb_typeof(p_given), 'missing')
        ),
        'traceback', ''
    )
$$;

-- What stands in the place of an item that failed, where its map went on.
CREATE OR REPLACE FUNCTION _cb_error_in_place(p_index integer, p_error jsonb)
RETURNS jsonb
LANGUAGE sql IMMUTABLE SET search_path FROM CURRENT AS $$
    SELECT jsonb_build_object(
        'index', p_index, 'type', coalesce(p_error ->> 'type', ''), 'message', coalesce(p_error ->> 'message', '')
    )
$$;

-- The output of a map as one list.
CREATE OR REPLACE FUNCTION _cb_list_of_items(p_step_run_id bigint)
RETURNS jsonb
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT coalesce(
        jsonb_agg(
            CASE WHEN item.status = 'failed' THEN _cb_error_in_place(item.index, item.error) ELSE item.output END
            ORDER BY item.index
        ),
        '[]'
    )
    FROM cb_items AS item
    WHERE item.step_run_id = p_step_run_id
$$;

-- The values of a completed map's items, in their order: at most p_limit of them, from the one after p_after on, and one
-- at least, but no more than are stored in p_size bytes. is_error says that the item failed, and its value tells how.
CREATE OR REPLACE FUNCTION cb_read_items(
    p_step_run_id bigint,
    p_after integer,
    p_limit integer,
    p_size bigint DEFAULT 4194304
)
RETURNS TABLE (index integer, value jsonb, is_error boolean)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
BEGIN
    RETURN QUERY
    SELECT page.index,
           CASE WHEN page.status = 'failed' THEN _cb_error_in_place(page.index, page.error) ELSE page.output END,
           page.status = 'failed'
    FROM (
        SELECT item.index, item.status, item.output, item.error,
               sum(pg_column_size(item.output)) OVER (ORDER BY item.index) AS size_so_far
        FROM cb_items AS item
        WHERE item.step_run_id = p_step_run_id AND item.index > p_after
        ORDER BY item.index
        LIMIT p_limit
    ) AS page
    WHERE coalesce(page.size_so_far, 0) <= p_size OR page.index = p_after + 1
    ORDER BY page.index;
END;
$$;

-- Claim due items for a worker, at most p_limits of each lane, as cb_claim_steps does steps. What all items of a map are
-- called with (the run's input, outputs, lists, its signal) comes with the first of them only.
CREATE OR REPLACE FUNCTION cb_claim_items(
    p_worker_id bigint,
    p_lease interval,
    p_queues text[],
    p_step_ids bigint[],
    p_priorities integer[],
    p_low_ids bigint[],
    p_limits integer[],
    p_suspect boolean DEFAULT false,
    p_all_events boolean DEFAULT false
)
RETURNS TABLE (
    run_id bigint,
    delivery_token uuid,
    queue text,
    step_id bigint,
    priority integer,
    flow_run_id bigint,
    step_run_id bigint,
    index integer,
    item jsonb,
    is_error boolean,
    is_first boolean,
    input jsonb,
    headers jsonb,
    outputs jsonb,
    signal jsonb,
    lists jsonb,
    delivery_count integer,
    failure_count integer,
    lost_count integer
)
LANGUAGE plpgsql ROWS 200 SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_token uuid := gen_random_uuid();
    v_claimed bigint[];
BEGIN
    IF p_suspect THEN
        v_claimed := _cb_find_suspect_items(p_queues, p_step_ids, p_priorities);
    ELSE
        v_claimed := _cb_find_due_items(p_queues, p_step_ids, p_priorities, p_low_ids, p_limits);
    END IF;
    -- Of a map that has ended meanwhile nothing is run: such an item leaves its lane, and is ended with the others.
    RETURN QUERY
    WITH claimed AS (
        UPDATE cb_items AS item
        SET status = CASE WHEN live.is_live THEN 'started' ELSE 'queued' END,
            visible_at = CASE WHEN NOT live.is_live THEN 'infinity'::timestamptz END,
            delivery_token = v_token,
            lease_until = CASE WHEN live.is_live THEN _cb_now() + p_lease END,
            worker_id = p_worker_id,
            delivery_count = item.delivery_count + live.is_live::integer,
            started_at = coalesce(item.started_at, CASE WHEN live.is_live THEN _cb_now() END)
        FROM cb_step_runs AS run
        CROSS JOIN LATERAL (SELECT run.status = 'waiting_for_items' AS is_live) AS live
        WHERE item.id = ANY (v_claimed) AND run.id = item.step_run_id
        RETURNING item.id, item.queue, item.step_id, item.priority, item.flow_run_id, item.step_run_id, item.index,
                  item.input, item.source_id, item.delivery_count, item.failure_count, item.lost_count, item.status
    ), numbered AS (
        SELECT claimed.*, row_number() OVER (PARTITION BY claimed.step_run_id) = 1 AS is_first
        FROM claimed
        WHERE claimed.status = 'started'
    )
    SELECT claimed.id, v_token, claimed.queue, claimed.step_id, claimed.priority::integer, claimed.flow_run_id,
           claimed.step_run_id, claimed.index,
           CASE
               WHEN claimed.source_id IS NULL THEN claimed.input
               WHEN source.status = 'failed' THEN _cb_error_in_place(source.index, source.error)
               ELSE source.output
           END,
           coalesce(source.status = 'failed', false),
           claimed.is_first,
           CASE WHEN claimed.is_first AND step.takes_input THEN flow_run.input END,
           CASE WHEN claimed.is_first THEN flow_run.headers END,
           CASE WHEN claimed.is_first AND step.dependency_count > 0
                THEN _cb_outputs_for(claimed.step_run_id) - step.over END,
           CASE WHEN claimed.is_first AND step.takes_signal THEN _cb_signal_of(claimed.step_run_id) END,
           CASE WHEN claimed.is_first AND step.takes_lists THEN _cb_lists_for(claimed.step_run_id) - step.over END,
           claimed.delivery_count, claimed.failure_count, claimed.lost_count
    FROM numbered AS claimed
    JOIN cb_steps AS step ON step.id = claimed.step_id
    JOIN cb_flow_runs AS flow_run ON flow_run.id = claimed.flow_run_id
    LEFT JOIN cb_items AS source ON source.id = claimed.source_id;
    IF p_all_events THEN
        PERFORM _cb_note_item_claims(v_claimed, v_token);
    END IF;
END;
$$;

-- Lock due items of these lanes, at most p_limits of each.
CREATE OR REPLACE FUNCTION _cb_find_due_items(
    p_queues text[],
    p_step_ids bigint[],
    p_priorities integer[],
    p_low_ids bigint[],
    p_limits integer[]
)
RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_sort = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_due bigint[];
BEGIN
    SELECT coalesce(array_agg(head.id), ARRAY[]::bigint[]) INTO v_due
    FROM unnest(p_queues, p_step_ids, p_priorities, p_low_ids, p_limits) AS lane (queue, step_id, priority, low_id, slots)
    CROSS JOIN LATERAL (
        SELECT due.id
        FROM cb_items AS due
        WHERE (due.queue, due.step_id, due.priority, due.id)
                >= (lane.queue, lane.step_id, lane.priority, lane.low_id)
          AND (due.queue, due.step_id, due.priority) <= (lane.queue, lane.step_id, lane.priority)
          AND due.status = 'queued' AND due.visible_at IS NULL AND due.lost_count < 2
        ORDER BY due.queue, due.step_id, due.priority, due.id
        LIMIT lane.slots
        FOR UPDATE SKIP LOCKED
    ) AS head;
    RETURN v_due;
END;
$$;

-- Lock one due item of these lanes that has lost its worker at least twice, the highest, then oldest.
CREATE OR REPLACE FUNCTION _cb_find_suspect_items(p_queues text[], p_step_ids bigint[], p_priorities integer[])
RETURNS bigint[]
LANGUAGE sql SET search_path FROM CURRENT AS $$
    SELECT ARRAY(
        SELECT suspect.id
        FROM cb_items AS suspect
        WHERE suspect.status = 'queued' AND suspect.visible_at IS NULL AND suspect.lost_count >= 2
          AND EXISTS (
              SELECT FROM unnest(p_queues, p_step_ids, p_priorities) AS lane (queue, step_id, priority)
              WHERE (lane.queue, lane.step_id, lane.priority) = (suspect.queue, suspect.step_id, suspect.priority)
          )
        ORDER BY suspect.priority DESC, suspect.id
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    )
$$;

-- Write the events of claims, where all events are wanted; whoever makes items does not know it, so their birth is noted here.
CREATE OR REPLACE FUNCTION _cb_note_item_claims(p_item_ids bigint[], p_delivery_token uuid)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_started bigint[] := ARRAY(
        SELECT item.id FROM cb_items AS item WHERE item.id = ANY (p_item_ids) AND item.status = 'started' ORDER BY item.id
    );
BEGIN
    PERFORM _cb_note_events(
        'item', 'queued',
        ARRAY(SELECT item.id FROM cb_items AS item WHERE item.id = ANY (v_started) AND item.delivery_count = 1), '',
        'queued', 'engine'
    );
    PERFORM _cb_note_events(
        'item', 'claimed', v_started, 'queued', 'started', 'worker',
        array_fill(p_delivery_token, ARRAY[cardinality(v_started)])
    );
END;
$$;

-- Lock the flow runs and the step runs of these items, each by id: before anything is done to the items themselves. Of maps
-- that no longer wait for items nothing is held any more then.
CREATE OR REPLACE FUNCTION _cb_lock_steps_of_items(p_item_ids bigint[])
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_ended bigint[];
BEGIN
    PERFORM FROM cb_flow_runs AS flow_run
    WHERE flow_run.id = ANY (ARRAY(
        SELECT DISTINCT item.flow_run_id FROM cb_items AS item WHERE item.id = ANY (p_item_ids)
    ))
    ORDER BY flow_run.id
    FOR NO KEY UPDATE;
    WITH held AS (
        SELECT run.id, run.status
        FROM cb_step_runs AS run
        WHERE run.id = ANY (ARRAY(
            SELECT DISTINCT item.step_run_id FROM cb_items AS item WHERE item.id = ANY (p_item_ids)
        ))
        ORDER BY run.id
        FOR NO KEY UPDATE
    )
    SELECT array_agg(held.id) FILTER (WHERE held.status <> 'waiting_for_items') INTO v_ended FROM held;
    IF v_ended IS NOT NULL THEN
        PERFORM _cb_end_overlooked_items(v_ended);
    END IF;
END;
$$;

-- Complete claimed items with their outputs, and their steps with the last of them: 'completed', 'canceled' (it was being
-- canceled) or 'stale' for each, in the order given. p_notify wakes workers that sleep, and tells waiting callers and open
-- pages.
CREATE OR REPLACE FUNCTION cb_complete_items(
    p_item_ids bigint[],
    p_delivery_tokens uuid[],
    p_outputs jsonb[],
    p_notify boolean DEFAULT false,
    p_all_events boolean DEFAULT false
)
RETURNS TABLE (run_id bigint, verdict text)
LANGUAGE plpgsql ROWS 200 SET search_path FROM CURRENT SET lock_timeout = '250ms'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_places bigint[];      -- of the claims that were ours: the same item may be reported under two tokens
    v_steps bigint[];       -- of the items at these places
    v_queues text[] := ARRAY[]::text[];
BEGIN
    PERFORM _cb_lock_steps_of_items(p_item_ids);
    -- Whoever else writes what is started has that lock too, or skips what is locked: so in any order.
    WITH completed AS (
        UPDATE cb_items AS item
        SET status = 'completed', output = claim.output, error = NULL, lease_until = NULL, finished_at = _cb_now()
        FROM unnest(p_item_ids, p_delivery_tokens, p_outputs)
            WITH ORDINALITY AS claim (id, delivery_token, output, place)
        WHERE item.id = claim.id AND item.delivery_token = claim.delivery_token AND item.status = 'started'
        RETURNING item.step_run_id, claim.place
    )
    SELECT coalesce(array_agg(completed.place), ARRAY[]::bigint[]),
           coalesce(array_agg(completed.step_run_id), ARRAY[]::bigint[])
    INTO v_places, v_steps
    FROM completed;

    IF p_all_events THEN
        PERFORM _cb_note_events(
            'item', 'completed', ARRAY(SELECT p_item_ids[place] FROM unnest(v_places) AS place), 'started',
            'completed', 'worker', ARRAY(SELECT p_delivery_tokens[place] FROM unnest(v_places) AS place)
        );
    END IF;
    IF v_steps <> '{}' THEN
        v_queues := _cb_count_items(v_steps, ARRAY[]::bigint[]);
    END IF;
    IF cardinality(v_places) = cardinality(p_item_ids) THEN
        IF p_notify AND v_queues <> '{}' THEN
            PERFORM _cb_notify_sleepers(v_queues);
        END IF;
        RETURN QUERY SELECT claim.id, 'completed'::text FROM unnest(p_item_ids) AS claim (id);
        RETURN;
    END IF;
    v_places := v_places || _cb_complete_canceling_items(p_item_ids, p_delivery_tokens, p_outputs);
    RETURN QUERY
    SELECT * FROM _cb_settle_items_end(p_item_ids, p_delivery_tokens, v_places, 'completed', v_queues, p_notify);
END;
$$;

-- Count items that have ended: the step run of each that completed, and each that failed for good. Their steps complete with
-- the last item; with more failures than they allow they fail, or are skipped, as they say (on_exhausted). Runs go on, or
-- end. The caller has locked flow runs and step runs. Returns the queues of what was queued because of it.
CREATE OR REPLACE FUNCTION _cb_count_items(p_completed_of bigint[], p_failed_ids bigint[])
RETURNS text[]
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_ended bigint[];
    v_skipped bigint[];
    v_failed bigint[];
    v_queues text[] := ARRAY[]::text[];
BEGIN
    WITH news AS (
        SELECT step_run_id, count(*)::integer AS completed, 0 AS failed, NULL::bigint AS first_failed_id
        FROM unnest(p_completed_of) AS step_run_id
        GROUP BY step_run_id
        UNION ALL
        SELECT item.step_run_id, 0, count(*)::integer, min(item.id)
        FROM cb_items AS item
        WHERE item.id = ANY (p_failed_ids)
        GROUP BY item.step_run_id
    ), counts AS (
        SELECT step_run_id, sum(completed)::integer AS completed, sum(failed)::integer AS failed,
               min(first_failed_id) AS first_failed_id
        FROM news
        GROUP BY step_run_id
    ), decided AS (
        SELECT counts.*,
               CASE
                   WHEN run.items_failed + counts.failed > coalesce(step.max_failed_items, run.items_spawned)
                       THEN CASE step.on_exhausted WHEN 'fail' THEN 'failed' ELSE 'skipped' END
                   WHEN run.items_completed + run.items_failed + counts.completed + counts.failed = run.items_spawned
                       THEN 'completed'
                   ELSE 'waiting_for_items'
               END AS becomes
        FROM counts
        JOIN cb_step_runs AS run ON run.id = counts.step_run_id
        JOIN cb_steps AS step ON step.id = run.step_id
    ), counted AS (
        UPDATE cb_step_runs AS run
        SET items_completed = run.items_completed + decided.completed,
            items_failed = run.items_failed + decided.failed,
            status = decided.becomes,
            finished_at = CASE WHEN decided.becomes <> 'waiting_for_items' THEN _cb_now() END,
            error = CASE WHEN decided.becomes IN ('failed', 'skipped') THEN _cb_error_of_item(decided.first_failed_id) END,
            skip_reason = CASE WHEN decided.becomes = 'skipped' THEN 'exhausted' ELSE '' END
        FROM decided
        WHERE run.id = decided.step_run_id AND run.status = 'waiting_for_items'
        RETURNING run.id, run.status
    )
    SELECT array_agg(counted.id) FILTER (WHERE counted.status IN ('completed', 'skipped')),
           array_agg(counted.id) FILTER (WHERE counted.status = 'skipped'),
           array_agg(counted.id) FILTER (WHERE counted.status = 'failed')
    INTO v_ended, v_skipped, v_failed
    FROM counted;

    IF v_skipped IS NOT NULL THEN
        PERFORM _cb_note_events('step', 'skipped', v_skipped, 'waiting_for_items', 'skipped', 'engine');
        PERFORM _cb_cancel_items(v_skipped);
    END IF;
    IF v_failed IS NOT NULL THEN
        PERFORM _cb_note_events('step', 'failed', v_failed, 'waiting_for_items', 'failed', 'engine');
        v_queues := _cb_fail_flows_of(v_failed);
    END IF;
    IF v_ended IS NOT NULL THEN
        v_queues := v_queues || _cb_advance_flows(v_ended);
    END IF;
    RETURN v_queues;
END;
$$;

-- The error of an item, as its step has it: with the place of the item.
CREATE OR REPLACE FUNCTION _cb_error_of_item(p_item_id bigint)
RETURNS jsonb
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT item.error || jsonb_build_object('item', item.index) FROM cb_items AS item WHERE item.id = p_item_id
$$;

-- Report failed attempts of items, with what went wrong. One whose delay is given and that has a retry left is queued again
-- after it; any other has failed for good, and its step as it says. 'retrying', 'failed', 'canceled' or 'stale' for each.
CREATE OR REPLACE FUNCTION cb_fail_items(
    p_item_ids bigint[],
    p_delivery_tokens uuid[],
    p_errors jsonb[],
    p_retry_delays interval[],
    p_notify boolean DEFAULT false
)
RETURNS TABLE (run_id bigint, verdict text)
LANGUAGE plpgsql ROWS 200 SET search_path FROM CURRENT SET lock_timeout = '250ms'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_places bigint[];
    v_verdicts text[];
    v_failed bigint[];
    v_canceled bigint[];
    v_queues text[] := ARRAY[]::text[];
BEGIN
    PERFORM _cb_lock_steps_of_items(p_item_ids);
    WITH held AS (
        SELECT item.id, claim.error, claim.place,
               CASE WHEN item.failure_count < step.max_retries THEN _cb_now() + claim.retry_delay END AS retry_at
        FROM unnest(p_item_ids, p_delivery_tokens, p_errors, p_retry_delays)
            WITH ORDINALITY AS claim (id, delivery_token, error, retry_delay, place)
        JOIN cb_items AS item
            ON item.id = claim.id AND item.delivery_token = claim.delivery_token AND item.status = 'started'
        JOIN cb_steps AS step ON step.id = item.step_id
        ORDER BY item.id
        FOR NO KEY UPDATE OF item
    ), settled AS (
        UPDATE cb_items AS item
        SET status = CASE WHEN held.retry_at IS NULL THEN 'failed' ELSE 'queued' END,
            visible_at = held.retry_at,
            finished_at = CASE WHEN held.retry_at IS NULL THEN _cb_now() END,
            error = held.error,
            failure_count = item.failure_count + 1,
            lease_until = NULL
        FROM held
        WHERE item.id = held.id
        RETURNING item.id, held.place, item.status
    )
    SELECT array_agg(place), array_agg(CASE settled.status WHEN 'queued' THEN 'retrying' ELSE 'failed' END),
           array_agg(settled.id) FILTER (WHERE settled.status = 'failed')
    INTO v_places, v_verdicts, v_failed
    FROM settled;

    PERFORM _cb_note_flow_failures(
        'item', v_places, v_verdicts, p_item_ids, p_delivery_tokens, p_errors, p_retry_delays
    );
    IF v_failed IS NOT NULL THEN
        v_queues := _cb_count_items(ARRAY[]::bigint[], v_failed);
    END IF;
    IF cardinality(v_places) IS DISTINCT FROM cardinality(p_item_ids) THEN
        v_canceled := _cb_end_canceling_items(p_item_ids, p_delivery_tokens);
        v_places := v_places || v_canceled;
        v_verdicts := v_verdicts || array_fill('canceled'::text, ARRAY[cardinality(v_canceled)]);
    END IF;

    IF p_notify AND 'retrying' = ANY (v_verdicts) THEN
        PERFORM cb_wake_tick();
    END IF;
    IF p_notify AND v_queues <> '{}' THEN
        PERFORM _cb_notify_sleepers(v_queues);
    END IF;
    RETURN QUERY SELECT * FROM _cb_different_verdicts(p_item_ids, v_places, v_verdicts);
END;
$$;

-- Give claimed items back, unfinished, as cb_release_steps does steps.
CREATE OR REPLACE FUNCTION cb_release_items(
    p_item_ids bigint[],
    p_delivery_tokens uuid[],
    p_delays interval[],
    p_notify boolean DEFAULT false
)
RETURNS TABLE (run_id bigint, verdict text)
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '250ms'
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_places bigint[];
    v_queues text[];
BEGIN
    PERFORM _cb_lock_steps_of_items(p_item_ids);
    WITH held AS (
        SELECT item.id, claim.place, claim.delay
        FROM unnest(p_item_ids, p_delivery_tokens, p_delays)
            WITH ORDINALITY AS claim (id, delivery_token, delay, place)
        JOIN cb_items AS item
            ON item.id = claim.id AND item.delivery_token = claim.delivery_token AND item.status = 'started'
        ORDER BY item.id
        FOR NO KEY UPDATE OF item
    ), released AS (
        UPDATE cb_items AS item
        SET status = 'queued', visible_at = _cb_now() + held.delay, delivery_token = NULL, lease_until = NULL,
            worker_id = NULL
        FROM held
        WHERE item.id = held.id
        RETURNING held.place, item.queue, item.visible_at
    )
    SELECT coalesce(array_agg(place), ARRAY[]::bigint[]),
           coalesce(array_agg(DISTINCT queue) FILTER (WHERE visible_at IS NULL), ARRAY[]::text[])
    INTO v_places, v_queues
    FROM released;

    PERFORM _cb_note_events(
        'item', 'released', ARRAY(SELECT p_item_ids[place] FROM unnest(v_places) AS place), 'started', 'queued',
        'worker', ARRAY(SELECT p_delivery_tokens[place] FROM unnest(v_places) AS place),
        ARRAY(SELECT jsonb_build_object('delay', extract(epoch FROM p_delays[place])) FROM unnest(v_places) AS place)
    );
    IF p_notify THEN
        PERFORM cb_wake_tick();
    END IF;
    RETURN QUERY
    SELECT * FROM _cb_settle_items_end(p_item_ids, p_delivery_tokens, v_places, 'released', v_queues, p_notify);
END;
$$;

-- Renew the leases of claimed items, as cb_extend_steps does those of steps.
CREATE OR REPLACE FUNCTION cb_extend_items(p_item_ids bigint[], p_delivery_tokens uuid[], p_lease interval)
RETURNS TABLE (run_id bigint, verdict text)
LANGUAGE plpgsql ROWS 200 SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_places bigint[];
    v_verdicts text[];
    v_locked bigint[];
BEGIN
    WITH held AS (
        SELECT item.id, claim.place
        FROM unnest(p_item_ids, p_delivery_tokens) WITH ORDINALITY AS claim (id, delivery_token, place)
        JOIN cb_items AS item ON item.id = claim.id AND item.delivery_token = claim.delivery_token
        WHERE item.status IN ('started', 'canceling')
        FOR NO KEY UPDATE OF item SKIP LOCKED
    ), extended AS (
        UPDATE cb_items AS item
        SET lease_until = _cb_now() + p_lease
        FROM held
        WHERE item.id = held.id
        RETURNING held.place,
                  CASE
                      WHEN item.status = 'started' THEN 'extended'
                      WHEN _cb_step_may_finish(item.step_id) THEN 'extended'
                      ELSE 'canceling'
                  END AS verdict
    )
    SELECT array_agg(place), array_agg(extended.verdict) INTO v_places, v_verdicts FROM extended;

    IF cardinality(v_places) IS DISTINCT FROM cardinality(p_item_ids) THEN
        -- A statement of its own: what was settled meanwhile is not locked, but stale.
        v_locked := ARRAY(
            SELECT claim.place
            FROM unnest(p_item_ids, p_delivery_tokens) WITH ORDINALITY AS claim (id, delivery_token, place)
            JOIN cb_items AS item ON item.id = claim.id AND item.delivery_token = claim.delivery_token
            WHERE item.status IN ('started', 'canceling')
              AND item.id <> ALL (ARRAY(SELECT p_item_ids[extended.place] FROM unnest(v_places) AS extended (place)))
        );
        v_places := v_places || v_locked;
        v_verdicts := v_verdicts || array_fill('locked'::text, ARRAY[cardinality(v_locked)]);
    END IF;
    RETURN QUERY SELECT * FROM _cb_different_verdicts(p_item_ids, v_places, v_verdicts);
END;
$$;

-- Which of these items others have locked just now, or their step runs or flow runs, so that settling them would have to
-- wait. Waits for nobody.
CREATE OR REPLACE FUNCTION cb_find_locked_items(p_item_ids bigint[])
RETURNS TABLE (run_id bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '250ms'
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_free_flows bigint[] := ARRAY(
        SELECT flow_run.id
        FROM cb_flow_runs AS flow_run
        WHERE flow_run.id = ANY (ARRAY(
            SELECT DISTINCT item.flow_run_id FROM cb_items AS item WHERE item.id = ANY (p_item_ids)
        ))
        FOR NO KEY UPDATE SKIP LOCKED
    );
    v_free_steps bigint[] := ARRAY(
        SELECT run.id
        FROM cb_step_runs AS run
        WHERE run.flow_run_id = ANY (v_free_flows)
          AND run.id = ANY (ARRAY(SELECT DISTINCT item.step_run_id FROM cb_items AS item WHERE item.id = ANY (p_item_ids)))
        FOR NO KEY UPDATE SKIP LOCKED
    );
    v_free bigint[] := ARRAY(
        SELECT item.id
        FROM cb_items AS item
        WHERE item.id = ANY (p_item_ids) AND item.step_run_id = ANY (v_free_steps)
        FOR NO KEY UPDATE SKIP LOCKED
    );
BEGIN
    RETURN QUERY
    SELECT item.id FROM cb_items AS item WHERE item.id = ANY (p_item_ids) AND item.id <> ALL (v_free) ORDER BY item.id;
END;
$$;

-- The last part of settling, as _cb_settle_steps_end says of steps.
CREATE OR REPLACE FUNCTION _cb_settle_items_end(
    p_item_ids bigint[],
    p_delivery_tokens uuid[],
    p_places bigint[],
    p_accepted text,
    p_queues text[],
    p_notify boolean
)
RETURNS TABLE (run_id bigint, verdict text)
LANGUAGE plpgsql ROWS 200 SET search_path FROM CURRENT AS $$
DECLARE
    v_canceled bigint[];
BEGIN
    IF p_notify AND p_queues <> '{}' THEN
        PERFORM _cb_notify_sleepers(p_queues);
    END IF;
    IF cardinality(p_places) = cardinality(p_item_ids) THEN
        RETURN QUERY SELECT claim.id, p_accepted FROM unnest(p_item_ids) AS claim (id);
        RETURN;
    END IF;

    v_canceled := _cb_end_canceling_items(p_item_ids, p_delivery_tokens);
    RETURN QUERY
    SELECT claim.id,
           CASE
               WHEN claim.place = ANY (p_places) THEN p_accepted
               WHEN claim.place = ANY (v_canceled) THEN 'canceled'
               ELSE 'stale'
           END
    FROM unnest(p_item_ids) WITH ORDINALITY AS claim (id, place);
END;
$$;
