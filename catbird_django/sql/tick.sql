-- The tick: upkeep that one worker at a time does for all.
--
-- Runs whose time has come are made due, runs that were not started in time expire, runs whose worker was lost are queued
-- again, and runs that are being canceled for too long are ended. Whoever holds the lease 'tick' does it; every worker
-- can, and takes over when the holder is not heard of. Each function is bounded, skips what is locked, and can be
-- repeated: dying anywhere in it loses nothing.
--
-- Locks: leases, then as `sql/flow_upkeep.sql`, then task runs by id.

-- Take the lease of this name, or keep it, for a while. False while another worker holds it.
CREATE OR REPLACE FUNCTION _cb_take_lease(p_name text, p_worker_id bigint, p_hold interval)
RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO cb_leases AS lease (name, worker_id, held_until)
    VALUES (p_name, p_worker_id, _cb_now() + p_hold)
    ON CONFLICT (name) DO UPDATE
    SET worker_id = excluded.worker_id, held_until = excluded.held_until
    WHERE lease.worker_id = excluded.worker_id OR lease.held_until < _cb_now();
    RETURN FOUND;
END;
$$;

-- Do one round of upkeep, if this worker holds the lease 'tick' or can take it for p_hold. Says whether it did, which
-- queues have due work now that had not before, and in how many seconds the next run is due (NULL: none that we know of).
-- Not as an interval: how that is written depends on the session's IntervalStyle. At most p_limit runs of each kind are
-- moved; is_full says that there may be more. dead_rows is what the statistics say of the runs.
CREATE OR REPLACE FUNCTION cb_tick(p_worker_id bigint, p_hold interval, p_limit integer, p_cancel_grace interval)
RETURNS TABLE (
    is_elected boolean,
    queues text[],
    next_due_in double precision,
    is_full boolean,
    lost_count integer,
    dead_rows bigint
)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_due text[];
    v_due_count integer;
    v_lost text[];
    v_lost_count integer;
    v_expired_count integer;
    v_flows record;
BEGIN
    IF NOT _cb_take_lease('tick', p_worker_id, p_hold) THEN
        RETURN QUERY
        SELECT false, ARRAY[]::text[], extract(epoch FROM lease.held_until - _cb_now())::double precision, false, 0, 0::bigint
        FROM cb_leases AS lease
        WHERE lease.name = 'tick';
        RETURN;
    END IF;

    SELECT * INTO v_flows FROM _cb_tick_flows(p_limit, p_cancel_grace);
    v_expired_count := _cb_expire_tasks(p_limit);      -- first: what has expired is not made due
    SELECT due.queues, due.run_count INTO v_due, v_due_count FROM _cb_make_tasks_due(p_limit) AS due;
    SELECT lost.queues, lost.run_count INTO v_lost, v_lost_count FROM _cb_take_back_lost_tasks(p_limit) AS lost;
    PERFORM _cb_end_overdue_canceling_tasks(p_limit, p_cancel_grace);

    RETURN QUERY
    SELECT true,
           ARRAY(SELECT DISTINCT unnest(v_due || v_lost || v_flows.queues)),
           extract(epoch FROM least(
               (SELECT min(run.visible_at) FROM cb_task_runs AS run WHERE run.status = 'queued' AND run.visible_at IS NOT NULL)
                   - _cb_now(),
               (SELECT min(run.expires_at) FROM cb_task_runs AS run WHERE run.status = 'queued' AND run.expires_at IS NOT NULL)
                   - _cb_now(),
               v_flows.next_due_in
           ))::double precision,
           greatest(v_due_count, v_lost_count, v_expired_count, v_flows.run_count) >= p_limit,
           v_lost_count + v_flows.lost_count,
           pg_stat_get_dead_tuples('cb_task_runs'::regclass) + pg_stat_get_dead_tuples('cb_step_runs'::regclass)
               + pg_stat_get_dead_tuples('cb_items'::regclass)
               + pg_stat_get_dead_tuples('cb_step_readiness'::regclass);
END;
$$;

-- End the queued runs that were not started before they expired. Returns how many they were.
CREATE OR REPLACE FUNCTION _cb_expire_tasks(p_limit integer)
RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_expired bigint[];
BEGIN
    WITH expired AS (
        UPDATE cb_task_runs AS run
        SET status = 'expired', finished_at = _cb_now(), visible_at = NULL
        WHERE run.id = ANY (ARRAY(
            SELECT late.id
            FROM cb_task_runs AS late
            WHERE late.status = 'queued' AND late.expires_at <= _cb_now()
            ORDER BY late.expires_at
            LIMIT p_limit
            FOR UPDATE SKIP LOCKED
        ))
        RETURNING run.id
    )
    SELECT array_agg(id) INTO v_expired FROM expired;

    IF v_expired IS NOT NULL THEN
        PERFORM _cb_note_task_events('expired', v_expired, 'queued', 'expired', 'tick');
        PERFORM _cb_tell_finished_tasks(v_expired);
    END IF;
    RETURN coalesce(cardinality(v_expired), 0);
END;
$$;

-- Make due the runs whose time has come. Returns their queues, and how many they were.
CREATE OR REPLACE FUNCTION _cb_make_tasks_due(p_limit integer)
RETURNS TABLE (queues text[], run_count integer)
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    RETURN QUERY
    WITH due AS (
        UPDATE cb_task_runs AS run
        SET visible_at = NULL
        WHERE run.id = ANY (ARRAY(
            SELECT waiting.id
            FROM cb_task_runs AS waiting
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

-- Take back the runs whose lease ran out: a lost delivery is counted, and they are queued again, or have failed when
-- that happened more often than their task allows. Returns the queues of the former, and how many they all were.
CREATE OR REPLACE FUNCTION _cb_take_back_lost_tasks(p_limit integer)
RETURNS TABLE (queues text[], run_count integer)
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_back bigint[];
    v_ended bigint[];
BEGIN
    WITH lost AS (
        SELECT run.id, run.lost_count + 1 AS lost_count
        FROM cb_task_runs AS run
        WHERE run.lease_until < _cb_now() AND run.status = 'started'
        ORDER BY run.lease_until
        LIMIT p_limit
        FOR UPDATE SKIP LOCKED
    ), decided AS (
        SELECT lost.id, lost.lost_count, lost.lost_count > coalesce(task.max_lost, 5) AS is_final
        FROM lost
        JOIN cb_task_runs AS run ON run.id = lost.id
        LEFT JOIN cb_tasks AS task ON task.id = run.task_id
    ), taken_back AS (
        UPDATE cb_task_runs AS run
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
    INTO queues, run_count, v_back, v_ended
    FROM taken_back;

    PERFORM _cb_note_task_events('lost', v_back, 'started', 'queued', 'tick');
    IF v_ended IS NOT NULL THEN
        PERFORM _cb_note_task_events('lost', v_ended, 'started', 'failed', 'tick');
        queues := queues || _cb_run_on_fail(v_ended);
        PERFORM _cb_tell_finished_tasks(v_ended);
    END IF;
    RETURN NEXT;
END;
$$;

-- End the runs that are being canceled and whose worker was lost, or whose handler did not stop within the grace. Its
-- claim is void from then on.
CREATE OR REPLACE FUNCTION _cb_end_overdue_canceling_tasks(p_limit integer, p_grace interval)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_ended bigint[];
BEGIN
    WITH ended AS (
        UPDATE cb_task_runs AS run
        SET status = 'canceled', finished_at = _cb_now(), lease_until = NULL
        WHERE run.id = ANY (ARRAY(
            SELECT overdue.id
            FROM cb_task_runs AS overdue
            WHERE overdue.status = 'canceling'
              AND (
                  overdue.lease_until < _cb_now()
                  OR (overdue.cancel_requested_at < _cb_now() - p_grace AND NOT _cb_may_finish(overdue.task_id))
              )
            ORDER BY overdue.cancel_requested_at
            LIMIT p_limit
            FOR UPDATE SKIP LOCKED
        ))
        RETURNING run.id
    )
    SELECT array_agg(id) INTO v_ended FROM ended;

    IF v_ended IS NOT NULL THEN
        PERFORM _cb_note_task_events('canceled', v_ended, 'canceling', 'canceled', 'tick');
        PERFORM _cb_tell_finished_tasks(v_ended);
    END IF;
END;
$$;

-- What is stored of a run that lost its worker too often.
CREATE OR REPLACE FUNCTION _cb_lost_error(p_lost_count integer)
RETURNS jsonb
LANGUAGE sql IMMUTABLE SET search_path FROM CURRENT AS $$
    SELECT jsonb_build_object(
        'type', 'WorkerLost',
        'message', format('lost its worker %s times', p_lost_count),
        'traceback', ''
    )
$$;

-- Tell the worker that does the tick that a run may be due earlier than it knows.
CREATE OR REPLACE FUNCTION cb_wake_tick()
RETURNS integer
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT 1 FROM pg_notify('cb_work', 'tick')
$$;
REVOKE ALL ON FUNCTION cb_wake_tick() FROM PUBLIC;
