-- Steps: claim what is queued, and settle it.
--
-- As with tasks, a claim call makes one uuid; (step run id, delivery token) names a delivery, and whoever settles names
-- both. Settling is one transaction for a whole batch, across many flow runs: what is no longer ours is answered 'stale' and
-- disturbs nobody; outputs are written, successors are counted for, conditions decided, the ready queued, and runs whose
-- end is full finished (F4). Dying before the commit, nothing has happened. Nor has it when somebody else has one of the
-- flow runs locked for more than a moment: as with tasks that raises 55P03, and cb_find_locked_steps says which it is.
--
-- Locks: flow runs by id, then step runs by id, then as `sql/readiness.sql`; claims skip what is locked and wait for nobody.

-- Which of these steps, given by flow, step and fingerprint, are stored: one row per version that has a step of that name
-- which is called in the same way. is_inline: whether it is an inline step there.
CREATE OR REPLACE FUNCTION cb_find_steps(p_flows text[], p_steps text[], p_fingerprints text[])
RETURNS TABLE (step_id bigint, flow_id bigint, is_inline boolean, place integer)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY
    SELECT step.id, step.flow_id, step.is_inline, given.place::integer
    FROM unnest(p_flows, p_steps, p_fingerprints) WITH ORDINALITY AS given (flow, step, fingerprint, place)
    JOIN cb_flows AS flow ON flow.name = given.flow
    JOIN cb_steps AS step ON step.flow_id = flow.id AND step.name = given.step AND step.fingerprint = given.fingerprint
    ORDER BY step.id;
END;
$$;

-- The lanes that have due step runs, or due items of maps, as cb_find_task_lanes says of tasks.
CREATE OR REPLACE FUNCTION cb_find_step_lanes(p_step_ids bigint[], p_queues text[] DEFAULT NULL)
RETURNS TABLE (
    queue text,
    step_id bigint,
    priority integer,
    head_id bigint,
    head_age double precision,
    is_suspect boolean
)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN QUERY
    WITH RECURSIVE lane AS (
        (
            SELECT run.queue, run.step_id, run.priority, run.id, run.queued_at
            FROM cb_step_runs AS run
            WHERE run.status = 'queued' AND run.visible_at IS NULL AND run.lost_count < 2
            ORDER BY run.queue, run.step_id, run.priority, run.id
            LIMIT 1
        )
        UNION ALL
        SELECT following.queue, following.step_id, following.priority, following.id, following.queued_at
        FROM lane
        CROSS JOIN LATERAL (
            SELECT run.queue, run.step_id, run.priority, run.id, run.queued_at
            FROM cb_step_runs AS run
            WHERE (run.queue, run.step_id, run.priority) > (lane.queue, lane.step_id, lane.priority)
              AND run.status = 'queued' AND run.visible_at IS NULL AND run.lost_count < 2
            ORDER BY run.queue, run.step_id, run.priority, run.id
            LIMIT 1
        ) AS following
    ), suspect AS (
        (
            SELECT run.queue, run.step_id, run.priority, run.id, run.queued_at
            FROM cb_step_runs AS run
            WHERE run.status = 'queued' AND run.visible_at IS NULL AND run.lost_count >= 2
            ORDER BY run.queue, run.step_id, run.priority, run.id
            LIMIT 1
        )
        UNION ALL
        SELECT following.queue, following.step_id, following.priority, following.id, following.queued_at
        FROM suspect
        CROSS JOIN LATERAL (
            SELECT run.queue, run.step_id, run.priority, run.id, run.queued_at
            FROM cb_step_runs AS run
            WHERE (run.queue, run.step_id, run.priority) > (suspect.queue, suspect.step_id, suspect.priority)
              AND run.status = 'queued' AND run.visible_at IS NULL AND run.lost_count >= 2
            ORDER BY run.queue, run.step_id, run.priority, run.id
            LIMIT 1
        ) AS following
    ), found AS (
        SELECT lane.*, false AS is_suspect FROM lane
        UNION ALL
        SELECT suspect.*, true FROM suspect
        UNION ALL
        SELECT * FROM _cb_item_lanes()
    )
    SELECT found.queue, found.step_id, found.priority::integer, found.id,
           extract(epoch FROM _cb_now() - found.queued_at)::double precision, found.is_suspect
    FROM found
    WHERE found.step_id = ANY (p_step_ids) AND (p_queues IS NULL OR found.queue = ANY (p_queues));
END;
$$;

-- The lanes that have due items, of every map: is_suspect as in the others.
CREATE OR REPLACE FUNCTION _cb_item_lanes()
RETURNS TABLE (queue text, step_id bigint, priority smallint, id bigint, queued_at timestamptz, is_suspect boolean)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN QUERY
    WITH RECURSIVE lane AS (
        (
            SELECT run.queue, run.step_id, run.priority, run.id, run.queued_at
            FROM cb_items AS run
            WHERE run.status = 'queued' AND run.visible_at IS NULL AND run.lost_count < 2
            ORDER BY run.queue, run.step_id, run.priority, run.id
            LIMIT 1
        )
        UNION ALL
        SELECT following.queue, following.step_id, following.priority, following.id, following.queued_at
        FROM lane
        CROSS JOIN LATERAL (
            SELECT run.queue, run.step_id, run.priority, run.id, run.queued_at
            FROM cb_items AS run
            WHERE (run.queue, run.step_id, run.priority) > (lane.queue, lane.step_id, lane.priority)
              AND run.status = 'queued' AND run.visible_at IS NULL AND run.lost_count < 2
            ORDER BY run.queue, run.step_id, run.priority, run.id
            LIMIT 1
        ) AS following
    ), suspect AS (
        (
            SELECT run.queue, run.step_id, run.priority, run.id, run.queued_at
            FROM cb_items AS run
            WHERE run.status = 'queued' AND run.visible_at IS NULL AND run.lost_count >= 2
            ORDER BY run.queue, run.step_id, run.priority, run.id
            LIMIT 1
        )
        UNION ALL
        SELECT following.queue, following.step_id, following.priority, following.id, following.queued_at
        FROM suspect
        CROSS JOIN LATERAL (
            SELECT run.queue, run.step_id, run.priority, run.id, run.queued_at
            FROM cb_items AS run
            WHERE (run.queue, run.step_id, run.priority) > (suspect.queue, suspect.step_id, suspect.priority)
              AND run.status = 'queued' AND run.visible_at IS NULL AND run.lost_count >= 2
            ORDER BY run.queue, run.step_id, run.priority, run.id
            LIMIT 1
        ) AS following
    )
    SELECT lane.*, false FROM lane
    UNION ALL
    SELECT suspect.*, true FROM suspect;
END;
$$;

-- Claim due step runs for a worker, at most p_limits of each lane, as cb_claim_tasks says; p_suspect claims those that have
-- lost their worker twice, and only those. What a step is called with comes along: the run's input where it takes it,
-- the outputs of its dependencies by name (a skipped one is missing), its signal, and the maps whose items it takes:
-- their step runs, by name.
CREATE OR REPLACE FUNCTION cb_claim_steps(
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
SET enable_sort = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_token uuid := gen_random_uuid();
    v_claimed bigint[];
BEGIN
    IF p_suspect THEN
        v_claimed := _cb_find_suspect_steps(p_queues, p_step_ids, p_priorities);
    ELSE
        SELECT coalesce(array_agg(head.id), ARRAY[]::bigint[]) INTO v_claimed
        FROM unnest(p_queues, p_step_ids, p_priorities, p_low_ids, p_limits)
            AS lane (queue, step_id, priority, low_id, slots)
        CROSS JOIN LATERAL (
            SELECT due.id
            FROM cb_step_runs AS due
            WHERE (due.queue, due.step_id, due.priority, due.id)
                    >= (lane.queue, lane.step_id, lane.priority, lane.low_id)
              AND (due.queue, due.step_id, due.priority) <= (lane.queue, lane.step_id, lane.priority)
              AND due.status = 'queued' AND due.visible_at IS NULL AND due.lost_count < 2
            ORDER BY due.queue, due.step_id, due.priority, due.id
            LIMIT lane.slots
            FOR UPDATE SKIP LOCKED
        ) AS head;
    END IF;
    UPDATE cb_step_runs AS run
    SET status = 'started',
        delivery_token = v_token,
        lease_until = _cb_now() + p_lease,
        worker_id = p_worker_id,
        delivery_count = run.delivery_count + 1,
        started_at = coalesce(run.started_at, _cb_now())
    WHERE run.id = ANY (v_claimed);
    IF p_all_events THEN
        -- Whoever queues a step does not know that all events are wanted, so its birth is noted with its first claim.
        PERFORM _cb_note_events(
            'step', 'queued',
            ARRAY(SELECT run.id FROM cb_step_runs AS run WHERE run.id = ANY (v_claimed) AND run.delivery_count = 1), '',
            'queued', 'engine'
        );
        PERFORM _cb_note_events(
            'step', 'claimed', v_claimed, 'queued', 'started', 'worker', array_fill(v_token, ARRAY[cardinality(v_claimed)])
        );
    END IF;

    RETURN QUERY
    SELECT run.id, run.delivery_token, run.queue, run.step_id, run.priority::integer, run.flow_run_id,
           CASE WHEN step.takes_input THEN flow_run.input END, flow_run.headers,
           -- As _cb_outputs_for says: written out, because a function would be called for each of them.
           CASE WHEN step.dependency_count > 0 THEN (
               SELECT coalesce(jsonb_object_agg(received.source, coalesce(received.value, source.output)), '{}')
               FROM cb_step_inputs AS received
               LEFT JOIN cb_step_runs AS source ON source.id = received.source_run_id AND received.value IS NULL
               WHERE received.step_run_id = run.id AND NOT received.is_skipped
                 AND (received.value IS NOT NULL OR source.items_spawned IS NULL)
           ) END,
           CASE WHEN step.takes_signal THEN _cb_signal_of(run.id) END,
           CASE WHEN step.takes_lists THEN _cb_lists_for(run.id) END,
           run.delivery_count, run.failure_count, run.lost_count
    FROM cb_step_runs AS run
    JOIN cb_steps AS step ON step.id = run.step_id
    JOIN cb_flow_runs AS flow_run ON flow_run.id = run.flow_run_id
    WHERE run.id = ANY (v_claimed);
END;
$$;

-- Lock one due step run of these lanes that has lost its worker at least twice, the highest, then oldest.
CREATE OR REPLACE FUNCTION _cb_find_suspect_steps(p_queues text[], p_step_ids bigint[], p_priorities integer[])
RETURNS bigint[]
LANGUAGE sql SET search_path FROM CURRENT AS $$
    SELECT ARRAY(
        SELECT suspect.id
        FROM cb_step_runs AS suspect
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

-- What a step run has received from others, by the name of the step; what was skipped is missing, and lists of items are.
CREATE OR REPLACE FUNCTION _cb_outputs_for(p_step_run_id bigint)
RETURNS jsonb
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT coalesce(jsonb_object_agg(received.source, coalesce(received.value, source.output)), '{}')
    FROM cb_step_inputs AS received
    LEFT JOIN cb_step_runs AS source ON source.id = received.source_run_id AND received.value IS NULL
    WHERE received.step_run_id = p_step_run_id AND NOT received.is_skipped
      AND (received.value IS NOT NULL OR source.items_spawned IS NULL)
$$;

-- The maps whose outputs a step run takes: their step runs, by the name of the step.
CREATE OR REPLACE FUNCTION _cb_lists_for(p_step_run_id bigint)
RETURNS jsonb
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT coalesce(jsonb_object_agg(received.source, received.source_run_id), '{}')
    FROM cb_step_inputs AS received
    JOIN cb_step_runs AS source ON source.id = received.source_run_id AND source.items_spawned IS NOT NULL
    WHERE received.step_run_id = p_step_run_id AND NOT received.is_skipped
$$;

-- Lock the flow runs of these steps, by id: first of all, whatever is done to them.
CREATE OR REPLACE FUNCTION _cb_lock_flow_runs_of(p_step_run_ids bigint[])
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    PERFORM FROM cb_flow_runs AS flow_run
    WHERE flow_run.id = ANY (ARRAY(
        SELECT DISTINCT run.flow_run_id FROM cb_step_runs AS run WHERE run.id = ANY (p_step_run_ids)
    ))
    ORDER BY flow_run.id
    FOR NO KEY UPDATE;
END;
$$;

-- Complete claimed steps with their outputs, and let their runs go on: 'completed', 'canceled' (it was being canceled) or
-- 'stale' for each, in the order given. p_notify wakes workers that sleep, and tells waiting callers and open pages. Inline
-- steps that were run with them come along: the place of the claim, the name of the step and its output, each (F6). They
-- count only if their claim does.
CREATE OR REPLACE FUNCTION cb_complete_steps(
    p_step_run_ids bigint[],
    p_delivery_tokens uuid[],
    p_outputs jsonb[],
    p_notify boolean DEFAULT false,
    p_all_events boolean DEFAULT false,
    p_inline_places integer[] DEFAULT NULL,
    p_inline_steps text[] DEFAULT NULL,
    p_inline_outputs jsonb[] DEFAULT NULL
)
RETURNS TABLE (run_id bigint, verdict text)
LANGUAGE plpgsql ROWS 200 SET search_path FROM CURRENT SET lock_timeout = '250ms'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_completed bigint[];
    v_places bigint[];      -- of the claims that were ours: the same run may be reported under two tokens
    v_queues text[];
BEGIN
    PERFORM _cb_lock_flow_runs_of(p_step_run_ids);
    WITH held AS (
        SELECT run.id, claim.place, claim.output
        FROM unnest(p_step_run_ids, p_delivery_tokens, p_outputs)
            WITH ORDINALITY AS claim (id, delivery_token, output, place)
        JOIN cb_step_runs AS run ON run.id = claim.id AND run.delivery_token = claim.delivery_token
        WHERE run.status = 'started'
        ORDER BY run.id
        FOR NO KEY UPDATE OF run
    ), completed AS (
        UPDATE cb_step_runs AS run
        SET status = 'completed', output = held.output, error = NULL, lease_until = NULL, finished_at = _cb_now()
        FROM held
        WHERE run.id = held.id
        RETURNING run.id, held.place
    )
    SELECT coalesce(array_agg(completed.id), ARRAY[]::bigint[]), coalesce(array_agg(completed.place), ARRAY[]::bigint[])
    INTO v_completed, v_places
    FROM completed;

    IF p_all_events THEN
        PERFORM _cb_note_events(
            'step', 'completed', ARRAY(SELECT p_step_run_ids[place] FROM unnest(v_places) AS place), 'started',
            'completed', 'worker', ARRAY(SELECT p_delivery_tokens[place] FROM unnest(v_places) AS place)
        );
    END IF;
    IF p_inline_places IS NOT NULL THEN
        v_completed := v_completed || _cb_complete_inline_steps(
            p_step_run_ids, v_places, p_inline_places, p_inline_steps, p_inline_outputs, p_all_events
        );
    END IF;
    v_queues := _cb_advance_flows(v_completed);
    IF cardinality(v_places) < cardinality(p_step_run_ids) THEN
        v_places := v_places || _cb_complete_canceling_steps(p_step_run_ids, p_delivery_tokens, p_outputs);
    END IF;
    RETURN QUERY
    SELECT * FROM _cb_settle_steps_end(p_step_run_ids, p_delivery_tokens, v_places, 'completed', v_queues, p_notify);
END;
$$;

-- Complete the inline steps that were run with these claims: those at p_places were ours. Returns their step runs.
CREATE OR REPLACE FUNCTION _cb_complete_inline_steps(
    p_step_run_ids bigint[],
    p_places bigint[],
    p_inline_places integer[],
    p_inline_steps text[],
    p_inline_outputs jsonb[],
    p_all_events boolean
)
RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_completed bigint[];
BEGIN
    WITH held AS (
        SELECT run.id, inline.output
        FROM unnest(p_inline_places, p_inline_steps, p_inline_outputs) AS inline (place, step, output)
        JOIN cb_step_runs AS claimed ON claimed.id = p_step_run_ids[inline.place]
        JOIN cb_steps AS own ON own.id = claimed.step_id
        JOIN cb_steps AS step ON step.flow_id = own.flow_id AND step.name = inline.step AND step.is_inline
        JOIN cb_step_runs AS run ON run.flow_run_id = claimed.flow_run_id AND run.step_id = step.id
        WHERE inline.place = ANY (p_places) AND run.status = 'waiting_for_dependencies'
        ORDER BY run.id
        FOR NO KEY UPDATE OF run
    ), completed AS (
        UPDATE cb_step_runs AS run
        SET status = 'completed', output = held.output, queued_at = _cb_now(), started_at = _cb_now(),
            finished_at = _cb_now()
        FROM held
        WHERE run.id = held.id
        RETURNING run.id
    )
    SELECT coalesce(array_agg(completed.id ORDER BY completed.id), ARRAY[]::bigint[]) INTO v_completed FROM completed;

    PERFORM _cb_note_inputs(v_completed);
    IF p_all_events THEN
        PERFORM _cb_note_events(
            'step', 'completed', v_completed, 'waiting_for_dependencies', 'completed', 'worker'
        );
    END IF;
    RETURN v_completed;
END;
$$;

-- Report failed attempts, with what went wrong. A step whose delay is given and that has a retry left is queued again after
-- it; any other has failed for good, and its run with it, unless it says that it is skipped then (on_exhausted).
-- 'retrying', 'failed', 'skipped', 'canceled' or 'stale' for each.
CREATE OR REPLACE FUNCTION cb_fail_steps(
    p_step_run_ids bigint[],
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
    v_skipped bigint[];
    v_failed bigint[];
    v_canceled bigint[];
    v_queues text[] := ARRAY[]::text[];
BEGIN
    PERFORM _cb_lock_flow_runs_of(p_step_run_ids);
    WITH held AS (
        SELECT run.id, claim.error, claim.place,
               CASE WHEN run.failure_count < step.max_retries THEN _cb_now() + claim.retry_delay END AS retry_at,
               step.on_exhausted
        FROM unnest(p_step_run_ids, p_delivery_tokens, p_errors, p_retry_delays)
            WITH ORDINALITY AS claim (id, delivery_token, error, retry_delay, place)
        JOIN cb_step_runs AS run
            ON run.id = claim.id AND run.delivery_token = claim.delivery_token AND run.status = 'started'
        JOIN cb_steps AS step ON step.id = run.step_id
        ORDER BY run.id
        FOR NO KEY UPDATE OF run
    ), decided AS (
        SELECT held.*,
               CASE
                   WHEN held.retry_at IS NOT NULL THEN 'queued'
                   WHEN held.on_exhausted = 'fail' THEN 'failed'
                   ELSE 'skipped'
               END AS becomes
        FROM held
    ), settled AS (
        UPDATE cb_step_runs AS run
        SET status = decided.becomes,
            visible_at = decided.retry_at,
            finished_at = CASE WHEN decided.becomes <> 'queued' THEN _cb_now() END,
            error = decided.error,
            skip_reason = CASE WHEN decided.becomes = 'skipped' THEN 'exhausted' ELSE '' END,
            failure_count = run.failure_count + 1,
            lease_until = NULL
        FROM decided
        WHERE run.id = decided.id
        RETURNING run.id, decided.place, decided.becomes
    )
    SELECT array_agg(place), array_agg(CASE settled.becomes WHEN 'queued' THEN 'retrying' ELSE settled.becomes END),
           array_agg(settled.id) FILTER (WHERE settled.becomes = 'skipped'),
           array_agg(settled.id) FILTER (WHERE settled.becomes = 'failed')
    INTO v_places, v_verdicts, v_skipped, v_failed
    FROM settled;

    PERFORM _cb_note_flow_failures('step', v_places, v_verdicts, p_step_run_ids, p_delivery_tokens, p_errors, p_retry_delays);
    IF v_failed IS NOT NULL THEN
        v_queues := _cb_fail_flows_of(v_failed);
    END IF;
    IF v_skipped IS NOT NULL THEN
        v_queues := v_queues || _cb_advance_flows(v_skipped);
    END IF;
    IF cardinality(v_places) IS DISTINCT FROM cardinality(p_step_run_ids) THEN
        v_canceled := _cb_end_canceling_steps(p_step_run_ids, p_delivery_tokens);
        v_places := v_places || v_canceled;
        v_verdicts := v_verdicts || array_fill('canceled'::text, ARRAY[cardinality(v_canceled)]);
    END IF;

    IF p_notify AND 'retrying' = ANY (v_verdicts) THEN
        PERFORM cb_wake_tick();
    END IF;
    IF p_notify AND v_queues <> '{}' THEN
        PERFORM _cb_notify_sleepers(v_queues);
    END IF;
    RETURN QUERY SELECT * FROM _cb_different_verdicts(p_step_run_ids, v_places, v_verdicts);
END;
$$;

-- Write the events of failed attempts of steps or items: the claims at these places, with their verdicts.
CREATE OR REPLACE FUNCTION _cb_note_flow_failures(
    p_run_kind text,
    p_places bigint[],
    p_verdicts text[],
    p_run_ids bigint[],
    p_delivery_tokens uuid[],
    p_errors jsonb[],
    p_retry_delays interval[]
)
RETURNS void
LANGUAGE sql SET search_path FROM CURRENT AS $$
    INSERT INTO cb_events (at, run_kind, run_id, event, from_status, to_status, actor, delivery_token, details)
    SELECT _cb_now(), p_run_kind, p_run_ids[noted.place], noted.verdict, 'started',
           CASE noted.verdict WHEN 'retrying' THEN 'queued' ELSE noted.verdict END, 'worker',
           p_delivery_tokens[noted.place],
           _cb_error_in_short(p_errors[noted.place])
               || CASE noted.verdict
                      WHEN 'retrying'
                          THEN jsonb_build_object('retry_in', extract(epoch FROM p_retry_delays[noted.place]))
                      ELSE '{}'
                  END
    FROM unnest(p_places, p_verdicts) AS noted (place, verdict)
    ORDER BY noted.place
$$;

-- Skip claimed steps, as their handlers asked to, and let their runs go on: 'skipped', 'canceled' or 'stale' for each.
CREATE OR REPLACE FUNCTION cb_skip_steps(
    p_step_run_ids bigint[],
    p_delivery_tokens uuid[],
    p_reasons text[],
    p_notify boolean DEFAULT false
)
RETURNS TABLE (run_id bigint, verdict text)
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '250ms' AS $$
DECLARE
    v_places bigint[];
    v_skipped bigint[];
    v_queues text[];
BEGIN
    PERFORM _cb_lock_flow_runs_of(p_step_run_ids);
    WITH held AS (
        SELECT run.id, claim.place, claim.reason
        FROM unnest(p_step_run_ids, p_delivery_tokens, p_reasons)
            WITH ORDINALITY AS claim (id, delivery_token, reason, place)
        JOIN cb_step_runs AS run
            ON run.id = claim.id AND run.delivery_token = claim.delivery_token AND run.status = 'started'
        ORDER BY run.id
        FOR NO KEY UPDATE OF run
    ), skipped AS (
        UPDATE cb_step_runs AS run
        SET status = 'skipped', skip_reason = 'handler', skip_message = left(held.reason, 2000), lease_until = NULL,
            finished_at = _cb_now()
        FROM held
        WHERE run.id = held.id
        RETURNING run.id, held.place
    )
    SELECT coalesce(array_agg(skipped.id), ARRAY[]::bigint[]), coalesce(array_agg(skipped.place), ARRAY[]::bigint[])
    INTO v_skipped, v_places
    FROM skipped;

    PERFORM _cb_note_events(
        'step', 'skipped', ARRAY(SELECT p_step_run_ids[place] FROM unnest(v_places) AS place), 'started', 'skipped',
        'handler', ARRAY(SELECT p_delivery_tokens[place] FROM unnest(v_places) AS place),
        ARRAY(
            SELECT jsonb_build_object('reason', 'handler', 'message', left(p_reasons[place], 2000))
            FROM unnest(v_places) AS place
        )
    );
    v_queues := _cb_advance_flows(v_skipped);
    RETURN QUERY
    SELECT * FROM _cb_settle_steps_end(p_step_run_ids, p_delivery_tokens, v_places, 'skipped', v_queues, p_notify);
END;
$$;

-- Give claimed steps back, unfinished: queued again, at once or after their delay, and neither a failure nor a loss is
-- counted. 'released', 'canceled' or 'stale' for each. Locks the flow runs as well, for those that are being canceled.
CREATE OR REPLACE FUNCTION cb_release_steps(
    p_step_run_ids bigint[],
    p_delivery_tokens uuid[],
    p_delays interval[],
    p_notify boolean DEFAULT false
)
RETURNS TABLE (run_id bigint, verdict text)
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '250ms' AS $$
DECLARE
    v_places bigint[];
    v_queues text[];
BEGIN
    PERFORM _cb_lock_flow_runs_of(p_step_run_ids);
    WITH held AS (
        SELECT run.id, claim.place, claim.delay
        FROM unnest(p_step_run_ids, p_delivery_tokens, p_delays)
            WITH ORDINALITY AS claim (id, delivery_token, delay, place)
        JOIN cb_step_runs AS run
            ON run.id = claim.id AND run.delivery_token = claim.delivery_token AND run.status = 'started'
        ORDER BY run.id
        FOR NO KEY UPDATE OF run
    ), released AS (
        UPDATE cb_step_runs AS run
        SET status = 'queued', visible_at = _cb_now() + held.delay, delivery_token = NULL, lease_until = NULL, worker_id = NULL
        FROM held
        WHERE run.id = held.id
        RETURNING held.place, run.queue, run.visible_at
    )
    SELECT coalesce(array_agg(place), ARRAY[]::bigint[]),
           coalesce(array_agg(DISTINCT queue) FILTER (WHERE visible_at IS NULL), ARRAY[]::text[])
    INTO v_places, v_queues
    FROM released;

    PERFORM _cb_note_events(
        'step', 'released', ARRAY(SELECT p_step_run_ids[place] FROM unnest(v_places) AS place), 'started', 'queued',
        'worker', ARRAY(SELECT p_delivery_tokens[place] FROM unnest(v_places) AS place),
        ARRAY(SELECT jsonb_build_object('delay', extract(epoch FROM p_delays[place])) FROM unnest(v_places) AS place)
    );
    IF p_notify THEN
        PERFORM cb_wake_tick();
    END IF;
    RETURN QUERY
    SELECT * FROM _cb_settle_steps_end(p_step_run_ids, p_delivery_tokens, v_places, 'released', v_queues, p_notify);
END;
$$;

-- Renew the leases of claimed steps: 'extended', 'canceling' (its handler should stop), 'locked' (somebody has its row just
-- now, and its lease stays as it is), or 'stale' for each. Waits for no lock, as cb_extend_tasks.
CREATE OR REPLACE FUNCTION cb_extend_steps(p_step_run_ids bigint[], p_delivery_tokens uuid[], p_lease interval)
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
        SELECT run.id, claim.place
        FROM unnest(p_step_run_ids, p_delivery_tokens) WITH ORDINALITY AS claim (id, delivery_token, place)
        JOIN cb_step_runs AS run ON run.id = claim.id AND run.delivery_token = claim.delivery_token
        WHERE run.status IN ('started', 'canceling')
        FOR NO KEY UPDATE OF run SKIP LOCKED
    ), extended AS (
        UPDATE cb_step_runs AS run
        SET lease_until = _cb_now() + p_lease
        FROM held
        WHERE run.id = held.id
        RETURNING held.place,
                  CASE
                      WHEN run.status = 'started' THEN 'extended'
                      WHEN _cb_step_may_finish(run.step_id) THEN 'extended'
                      ELSE 'canceling'
                  END AS verdict
    )
    SELECT array_agg(place), array_agg(extended.verdict) INTO v_places, v_verdicts FROM extended;

    IF cardinality(v_places) IS DISTINCT FROM cardinality(p_step_run_ids) THEN
        -- A statement of its own: what was settled meanwhile is not locked, but stale.
        v_locked := ARRAY(
            SELECT claim.place
            FROM unnest(p_step_run_ids, p_delivery_tokens) WITH ORDINALITY AS claim (id, delivery_token, place)
            JOIN cb_step_runs AS run ON run.id = claim.id AND run.delivery_token = claim.delivery_token
            WHERE run.status IN ('started', 'canceling')
              AND run.id <> ALL (ARRAY(SELECT p_step_run_ids[extended.place] FROM unnest(v_places) AS extended (place)))
        );
        v_places := v_places || v_locked;
        v_verdicts := v_verdicts || array_fill('locked'::text, ARRAY[cardinality(v_locked)]);
    END IF;
    RETURN QUERY SELECT * FROM _cb_different_verdicts(p_step_run_ids, v_places, v_verdicts);
END;
$$;

-- Which of these steps others have locked just now, or their flow runs, so that settling them would have to wait. Waits
-- for nobody.
CREATE OR REPLACE FUNCTION cb_find_locked_steps(p_step_run_ids bigint[])
RETURNS TABLE (run_id bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '250ms'
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_free_flows bigint[] := ARRAY(
        SELECT flow_run.id
        FROM cb_flow_runs AS flow_run
        WHERE flow_run.id = ANY (ARRAY(
            SELECT DISTINCT run.flow_run_id FROM cb_step_runs AS run WHERE run.id = ANY (p_step_run_ids)
        ))
        FOR NO KEY UPDATE SKIP LOCKED
    );
    v_free bigint[] := ARRAY(
        SELECT run.id
        FROM cb_step_runs AS run
        WHERE run.id = ANY (p_step_run_ids) AND run.flow_run_id = ANY (v_free_flows)
        FOR NO KEY UPDATE SKIP LOCKED
    );
BEGIN
    RETURN QUERY
    SELECT run.id FROM cb_step_runs AS run WHERE run.id = ANY (p_step_run_ids) AND run.id <> ALL (v_free) ORDER BY run.id;
END;
$$;

-- The last part of settling: end what was being canceled, wake who sleeps, and answer for each claim: p_accepted where its
-- place is among p_places, 'canceled' where it was being canceled, else 'stale'.
CREATE OR REPLACE FUNCTION _cb_settle_steps_end(
    p_step_run_ids bigint[],
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
    IF cardinality(p_places) = cardinality(p_step_run_ids) THEN
        RETURN QUERY SELECT claim.id, p_accepted FROM unnest(p_step_run_ids) AS claim (id);
        RETURN;
    END IF;

    v_canceled := _cb_end_canceling_steps(p_step_run_ids, p_delivery_tokens);
    RETURN QUERY
    SELECT claim.id,
           CASE
               WHEN claim.place = ANY (p_places) THEN p_accepted
               WHEN claim.place = ANY (v_canceled) THEN 'canceled'
               ELSE 'stale'
           END
    FROM unnest(p_step_run_ids) WITH ORDINALITY AS claim (id, place);
END;
$$;
