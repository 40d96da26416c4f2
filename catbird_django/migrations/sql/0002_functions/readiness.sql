-- Readiness: a step starts when its count is full.
--
-- Every step has a row that counts what it requires: its dependencies, and its signal. A dependency that completes or is
-- skipped, and a signal that is given, are the same increment. When the count is full the step is queued, in the same
-- transaction, unless its condition skips it; of a map the items are queued (`sql/items.sql`). The end of a run is one more
-- such row: it requires the final steps (F3, F3a).
--
-- Whoever calls a function of this file has locked the flow runs: that alone keeps two predecessors, or a predecessor and
-- a signal, from both seeing one requirement left. Each statement takes many flow runs at once.
--
-- Locks: step runs by id, then readiness by id, of flow runs that the caller has locked.

-- Let runs go on after these steps have ended, completed or skipped, and these others may have everything they need.
-- Skips cascade, level by level, until nothing changes; then runs whose end is full complete, and those fail of which a
-- step has failed. Returns the queues of the steps that were queued.
CREATE OR REPLACE FUNCTION _cb_advance_flows(p_ended bigint[], p_touched bigint[] DEFAULT ARRAY[]::bigint[])
RETURNS text[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_ended bigint[] := p_ended;            -- step runs
    v_touched bigint[] := p_touched;        -- step runs
    v_failed bigint[] := ARRAY[]::bigint[]; -- step runs
    v_full bigint[] := ARRAY[]::bigint[];   -- flow runs
    v_queues text[] := ARRAY[]::text[];
BEGIN
    LOOP
        IF v_ended <> '{}' THEN
            SELECT v_touched || met.step_run_ids, v_full || met.flow_run_ids
            INTO v_touched, v_full
            FROM _cb_meet_requirements(v_ended) AS met;
        END IF;
        EXIT WHEN v_touched = '{}';
        SELECT decided.ended, v_failed || decided.failed, v_queues || decided.queues
        INTO v_ended, v_failed, v_queues
        FROM _cb_decide_steps(v_touched) AS decided;
        EXIT WHEN v_ended = '{}';
        v_touched := ARRAY[]::bigint[];
    END LOOP;

    IF v_failed <> '{}' THEN
        v_queues := v_queues || _cb_fail_flows_of(v_failed);
    END IF;
    IF v_full <> '{}' THEN
        v_queues := v_queues || _cb_complete_flows(v_full);
    END IF;
    RETURN v_queues;
END;
$$;

-- Count these steps, which have ended, for whoever requires them. Returns the step runs that were counted for, and the flow
-- runs whose end is full now.
CREATE OR REPLACE FUNCTION _cb_meet_requirements(p_step_run_ids bigint[])
RETURNS TABLE (step_run_ids bigint[], flow_run_ids bigint[])
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    WITH ended AS (
        SELECT run.flow_run_id, run.step_id, (run.status = 'skipped')::integer AS skipped
        FROM cb_step_runs AS run
        WHERE run.id = ANY (p_step_run_ids)
    ), met AS (
        SELECT readiness.id, count(*)::integer AS completed, sum(ended.skipped)::integer AS skipped
        FROM ended
        JOIN cb_step_dependencies AS edge ON edge.dependency_id = ended.step_id
        JOIN cb_step_readiness AS readiness
            ON readiness.flow_run_id = ended.flow_run_id AND readiness.step_id = edge.step_id
        GROUP BY readiness.id
        UNION ALL
        SELECT readiness.id, count(*)::integer, sum(ended.skipped)::integer
        FROM ended
        JOIN cb_steps AS step ON step.id = ended.step_id AND step.is_final
        JOIN cb_step_readiness AS readiness ON readiness.flow_run_id = ended.flow_run_id AND readiness.step_id IS NULL
        GROUP BY readiness.id
    ), held AS (
        SELECT readiness.id, met.completed, met.skipped
        FROM met
        JOIN cb_step_readiness AS readiness ON readiness.id = met.id
        ORDER BY readiness.id
        FOR NO KEY UPDATE OF readiness
    ), counted AS (
        UPDATE cb_step_readiness AS readiness
        SET completed_count = readiness.completed_count + held.completed,
            skipped_count = readiness.skipped_count + held.skipped
        FROM held
        WHERE readiness.id = held.id
        RETURNING readiness.step_run_id, readiness.flow_run_id,
                  readiness.completed_count = readiness.required_count AS is_full
    )
    SELECT coalesce(array_agg(counted.step_run_id) FILTER (WHERE counted.step_run_id IS NOT NULL), ARRAY[]::bigint[]),
           coalesce(
               array_agg(counted.flow_run_id) FILTER (WHERE counted.step_run_id IS NULL AND counted.is_full),
               ARRAY[]::bigint[]
           )
    INTO step_run_ids, flow_run_ids
    FROM counted;
    RETURN NEXT;
END;
$$;

-- Decide what becomes of these steps, as far as they wait and their dependencies have ended: skipped because of a
-- dependency or the condition, failed because of the condition, queued, or waiting for a signal. A condition that does
-- not mention the signal is decided before it is waited for (F10a). Returns the step runs that have ended (skipped, or maps
-- of nothing), those that failed, and the queues of those that were queued.
CREATE OR REPLACE FUNCTION _cb_decide_steps(p_step_run_ids bigint[])
RETURNS TABLE (ended bigint[], failed bigint[], queues text[])
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_blocked bigint[];
    v_conditional bigint[];
    v_ready bigint[];
    v_waiting bigint[];
    v_has_maps boolean;
    v_decided record;
    v_begun record;
BEGIN
    -- A statement of its own: it sees what the increments before it have written.
    SELECT array_agg(met.id) FILTER (WHERE met.is_blocked),
           array_agg(met.id) FILTER (WHERE NOT met.is_blocked AND met.is_conditional),
           array_agg(met.id) FILTER (WHERE NOT met.is_blocked AND NOT met.is_conditional AND met.is_full),
           array_agg(met.id) FILTER (WHERE NOT met.is_blocked AND NOT met.is_conditional AND NOT met.is_full),
           bool_or(met.is_map)
    INTO v_blocked, v_conditional, v_ready, v_waiting, v_has_maps
    FROM (
        SELECT run.id,
               step.kind = 'map' AS is_map,
               readiness.completed_count = readiness.required_count AS is_full,
               readiness.skipped_count > 0 AND _cb_lacks_a_dependency(run.flow_run_id, run.step_id) AS is_blocked,
               step.condition IS NOT NULL
                   AND CASE
                           WHEN step.condition_needs_signal THEN run.signaled_at IS NOT NULL
                           ELSE run.status <> 'waiting_for_signal'      -- where it was decided before
                       END AS is_conditional
        FROM cb_step_runs AS run
        JOIN cb_steps AS step ON step.id = run.step_id
        JOIN cb_step_readiness AS readiness ON readiness.flow_run_id = run.flow_run_id AND readiness.step_id = run.step_id
        WHERE run.id = ANY (p_step_run_ids)
          AND run.status IN ('waiting_for_dependencies', 'waiting_for_signal')
          AND readiness.completed_count - (run.signaled_at IS NOT NULL)::integer >= step.dependency_count
        ORDER BY run.id
    ) AS met;

    ended := coalesce(v_blocked, ARRAY[]::bigint[]);
    failed := ARRAY[]::bigint[];
    queues := ARRAY[]::text[];
    IF v_blocked IS NOT NULL THEN
        PERFORM _cb_skip_waiting_steps(
            v_blocked, 'dependency', array_fill('a step that it needs was skipped'::text, ARRAY[cardinality(v_blocked)])
        );
    END IF;
    IF v_conditional IS NOT NULL THEN
        SELECT * INTO v_decided FROM _cb_decide_conditions(v_conditional);
        ended := ended || v_decided.skipped;
        failed := v_decided.failed;
        v_ready := v_ready || v_decided.ready;
        v_waiting := v_waiting || v_decided.waiting;
    END IF;
    IF v_waiting IS NOT NULL THEN
        UPDATE cb_step_runs AS run
        SET status = 'waiting_for_signal',
            signal_due_at = _cb_now() + make_interval(secs => (step.signal ->> 'deadline')::double precision)
        FROM cb_steps AS step
        WHERE run.id = ANY (v_waiting) AND run.status <> 'waiting_for_signal' AND step.id = run.step_id;
        IF FOUND THEN
            PERFORM _cb_wake_tick_for_signals(v_waiting);
        END IF;
    END IF;
    IF v_ready IS NOT NULL THEN
        SELECT * INTO v_begun FROM _cb_begin_steps(v_ready, v_has_maps);
        ended := ended || v_begun.completed;
        failed := failed || v_begun.failed;
        queues := v_begun.queues;
    END IF;
    RETURN NEXT;
END;
$$;

-- Let these steps begin, which have everything they need: steps are queued, maps make their items. Returns the maps of
-- nothing, which have completed, those that were given no list and failed, and the queues of what is due.
CREATE OR REPLACE FUNCTION _cb_begin_steps(p_step_run_ids bigint[], p_has_maps boolean)
RETURNS TABLE (completed bigint[], failed bigint[], queues text[])
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_maps bigint[];
    v_others bigint[];
BEGIN
    PERFORM _cb_note_inputs(p_step_run_ids);
    IF NOT p_has_maps THEN
        RETURN QUERY SELECT ARRAY[]::bigint[], ARRAY[]::bigint[], _cb_queue_steps(p_step_run_ids);
        RETURN;
    END IF;
    SELECT array_agg(run.id) FILTER (WHERE step.kind = 'map'),
           coalesce(array_agg(run.id) FILTER (WHERE step.kind <> 'map'), ARRAY[]::bigint[])
    INTO v_maps, v_others
    FROM cb_step_runs AS run
    JOIN cb_steps AS step ON step.id = run.step_id
    WHERE run.id = ANY (p_step_run_ids);
    RETURN QUERY
    SELECT made.completed, made.failed, made.queues || _cb_queue_steps(v_others) FROM _cb_expand_maps(v_maps) AS made;
END;
$$;

-- Whether a step of a run needs the output of one that was skipped: then it is skipped too (F11a).
CREATE OR REPLACE FUNCTION _cb_lacks_a_dependency(p_flow_run_id bigint, p_step_id bigint)
RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT EXISTS (
        SELECT
        FROM cb_step_dependencies AS edge
        JOIN cb_step_runs AS needed ON needed.flow_run_id = p_flow_run_id AND needed.step_id = edge.dependency_id
        WHERE edge.step_id = p_step_id AND NOT edge.is_optional AND needed.status = 'skipped'
    )
$$;

-- Evaluate the conditions of these waiting steps, and skip or fail those that are not met, as each says. Returns which were
-- skipped and which failed, and of the others which are ready and which still wait for their signal.
CREATE OR REPLACE FUNCTION _cb_decide_conditions(p_step_run_ids bigint[])
RETURNS TABLE (skipped bigint[], failed bigint[], ready bigint[], waiting bigint[])
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_errors jsonb[];
    v_reasons text[];
BEGIN
    SELECT coalesce(array_agg(decided.id) FILTER (WHERE decided.becomes = 'skipped'), ARRAY[]::bigint[]),
           coalesce(array_agg(decided.reason) FILTER (WHERE decided.becomes = 'skipped'), ARRAY[]::text[]),
           coalesce(array_agg(decided.id) FILTER (WHERE decided.becomes = 'failed'), ARRAY[]::bigint[]),
           coalesce(array_agg(decided.error) FILTER (WHERE decided.becomes = 'failed'), ARRAY[]::jsonb[]),
           array_agg(decided.id) FILTER (WHERE decided.becomes = 'queued'),
           array_agg(decided.id) FILTER (WHERE decided.becomes = 'waiting')
    INTO skipped, v_reasons, failed, v_errors, ready, waiting
    FROM (
        SELECT run.id,
               CASE
                   WHEN found.error IS NOT NULL OR (NOT found.verdict AND step.on_unmet = 'fail') THEN 'failed'
                   WHEN NOT found.verdict THEN 'skipped'
                   WHEN readiness.completed_count = readiness.required_count THEN 'queued'
                   ELSE 'waiting'
               END AS becomes,
               'not met: ' || (step.condition ->> 'text') AS reason,
               _cb_condition_error(coalesce(found.error, 'not met: ' || (step.condition ->> 'text'))) AS error
        FROM cb_step_runs AS run
        JOIN cb_steps AS step ON step.id = run.step_id
        JOIN cb_step_readiness AS readiness ON readiness.flow_run_id = run.flow_run_id AND readiness.step_id = run.step_id
        CROSS JOIN LATERAL _cb_evaluate_condition(
            step.condition -> 'tree', _cb_condition_values(run.id, run.flow_run_id, run.step_id)
        ) AS found
        WHERE run.id = ANY (p_step_run_ids)
        ORDER BY run.id
    ) AS decided;

    IF skipped <> '{}' THEN
        PERFORM _cb_skip_waiting_steps(skipped, 'condition', v_reasons);
    END IF;
    IF failed <> '{}' THEN
        PERFORM _cb_fail_waiting_steps(failed, v_errors);
    END IF;
    RETURN NEXT;
END;
$$;

-- What a step's condition can look at: the input of the run, the outputs of its dependencies (a skipped one is missing),
-- and the signal that was accepted.
CREATE OR REPLACE FUNCTION _cb_condition_values(p_step_run_id bigint, p_flow_run_id bigint, p_step_id bigint)
RETURNS jsonb
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT jsonb_build_object('input', (SELECT run.input FROM cb_flow_runs AS run WHERE run.id = p_flow_run_id))
        || coalesce(
            (
                SELECT jsonb_object_agg(
                           step.name,
                           CASE WHEN needed.items_spawned IS NULL THEN needed.output ELSE _cb_list_of_items(needed.id) END
                       )
                FROM cb_steps AS own
                JOIN cb_step_dependencies AS edge ON edge.step_id = own.id
                JOIN cb_steps AS step ON step.id = edge.dependency_id
                JOIN cb_step_runs AS needed ON needed.flow_run_id = p_flow_run_id AND needed.step_id = edge.dependency_id
                WHERE own.id = p_step_id AND needed.status = 'completed' AND own.condition_roots ? step.name
            ),
            '{}'
        )
        || coalesce((SELECT jsonb_build_object('signal', given.payload) FROM _cb_signal_of(p_step_run_id) AS given (payload)
                     WHERE given.payload IS NOT NULL), '{}')
$$;

-- Queue these steps, which have everything they need. Returns the queues of those that are due; of the others whoever does
-- the upkeep is told.
CREATE OR REPLACE FUNCTION _cb_queue_steps(p_step_run_ids bigint[])
RETURNS text[]
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_queues text[];
    v_has_delays boolean;
BEGIN
    WITH due AS (
        -- As _cb_due_at says: written out, because a function would be called for each of them.
        SELECT run.id,
               coalesce(CASE WHEN step.dependency_count = 0 THEN greatest(flow_run.run_at, _cb_now()) END, _cb_now())
                   + coalesce(step.delay, interval '0') AS at
        FROM cb_step_runs AS run
        JOIN cb_steps AS step ON step.id = run.step_id
        JOIN cb_flow_runs AS flow_run ON flow_run.id = run.flow_run_id
        WHERE run.id = ANY (p_step_run_ids)
    ), queued AS (
        UPDATE cb_step_runs AS run
        SET status = 'queued', queued_at = _cb_now(), visible_at = CASE WHEN due.at > _cb_now() THEN due.at END
        FROM due
        WHERE run.id = due.id
        RETURNING run.queue, run.visible_at
    )
    SELECT coalesce(array_agg(DISTINCT queued.queue) FILTER (WHERE queued.visible_at IS NULL), ARRAY[]::text[]),
           coalesce(bool_or(queued.visible_at IS NOT NULL), false)
    INTO v_queues, v_has_delays
    FROM queued;
    IF v_has_delays THEN
        PERFORM cb_wake_tick();
    END IF;
    RETURN v_queues;
END;
$$;

-- When a step that is ready will be due: a first step not before its run, any step after its delay.
CREATE OR REPLACE FUNCTION _cb_due_at(p_dependency_count integer, p_run_at timestamptz, p_delay interval)
RETURNS timestamptz
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT coalesce(CASE WHEN p_dependency_count = 0 THEN greatest(p_run_at, _cb_now()) END, _cb_now())
        + coalesce(p_delay, interval '0')
$$;

-- Note what these steps, which are ready, have received: small values are kept where they were received; others are read
-- from their source when the step is claimed (F5).
CREATE OR REPLACE FUNCTION _cb_note_inputs(p_step_run_ids bigint[])
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    INSERT INTO cb_step_inputs (step_run_id, source, source_run_id, place, is_skipped, value)
    SELECT run.id, source.name, needed.id, source.position, needed.status = 'skipped',
           CASE WHEN pg_column_size(needed.output) <= 1000 THEN needed.output END
    FROM cb_step_runs AS run
    JOIN cb_step_dependencies AS edge ON edge.step_id = run.step_id AND NOT edge.is_order_only
    JOIN cb_steps AS source ON source.id = edge.dependency_id
    JOIN cb_step_runs AS needed ON needed.flow_run_id = run.flow_run_id AND needed.step_id = edge.dependency_id
    WHERE run.id = ANY (p_step_run_ids);
END;
$$;

-- Skip these waiting steps: one reason for all, and a message each.
CREATE OR REPLACE FUNCTION _cb_skip_waiting_steps(p_step_run_ids bigint[], p_reason text, p_messages text[])
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO cb_events (at, run_kind, run_id, event, from_status, to_status, actor, details)
    SELECT _cb_now(), 'step', run.id, 'skipped', run.status, 'skipped', 'engine',
           jsonb_build_object('reason', p_reason, 'message', given.message)
    FROM unnest(p_step_run_ids, p_messages) AS given (id, message)
    JOIN cb_step_runs AS run ON run.id = given.id
    ORDER BY run.id;

    UPDATE cb_step_runs AS run
    SET status = 'skipped', skip_reason = p_reason, skip_message = left(given.message, 2000), finished_at = _cb_now()
    FROM unnest(p_step_run_ids, p_messages) AS given (id, message)
    WHERE run.id = given.id;
END;
$$;

-- Fail these waiting steps, with an error each. Their flow runs are left to the caller.
CREATE OR REPLACE FUNCTION _cb_fail_waiting_steps(p_step_run_ids bigint[], p_errors jsonb[])
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO cb_events (at, run_kind, run_id, event, from_status, to_status, actor, details)
    SELECT _cb_now(), 'step', run.id, 'failed', run.status, 'failed', 'engine', _cb_error_in_short(given.error)
    FROM unnest(p_step_run_ids, p_errors) AS given (id, error)
    JOIN cb_step_runs AS run ON run.id = given.id
    ORDER BY run.id;

    UPDATE cb_step_runs AS run
    SET status = 'failed', error = given.error, finished_at = _cb_now()
    FROM unnest(p_step_run_ids, p_errors) AS given (id, error)
    WHERE run.id = given.id;
END;
$$;
