-- What the doctor looks at in flows: steps, what they count, runs, signals, and rows that belong to nothing.
--
-- As in `sql/doctor.sql`, a finding is what no function of ours leaves behind. Nothing is written and nothing is locked.

-- Everything that is wrong with flows.
CREATE OR REPLACE FUNCTION _cb_doctor_flows(p_lease interval, p_sweep interval, p_worker_ttl interval, p_limit integer)
RETURNS TABLE (check_id text, subject text, run_kind text, run_id bigint, message text)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY
    SELECT * FROM _cb_doctor_steps(p_lease, p_sweep, p_worker_ttl)
    UNION ALL SELECT * FROM _cb_doctor_items(p_lease, p_sweep, p_worker_ttl)
    UNION ALL SELECT * FROM _cb_doctor_maps()
    UNION ALL SELECT * FROM _cb_doctor_flow_runs()
    UNION ALL SELECT * FROM _cb_doctor_readiness()
    UNION ALL SELECT * FROM _cb_doctor_signals()
    UNION ALL SELECT * FROM _cb_doctor_flow_orphans(p_limit)
    UNION ALL SELECT * FROM _cb_doctor_due_steps(p_worker_ttl);
END;
$$;

-- What single step runs say of themselves, as _cb_doctor_runs does of tasks.
CREATE OR REPLACE FUNCTION _cb_doctor_steps(p_lease interval, p_sweep interval, p_worker_ttl interval)
RETURNS TABLE (check_id text, subject text, run_kind text, run_id bigint, message text)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    v_now timestamptz := _cb_now();
BEGIN
    RETURN QUERY
    WITH judged AS (
        SELECT run.id, run.status, run.lease_until, run.started_at, run.finished_at, run.delivery_count,
               run.failure_count, run.lost_count, run.step_id, flow_run.flow_name, step.name,
               array_remove(
                   ARRAY[
                       CASE WHEN is_ended AND run.lease_until IS NOT NULL THEN 'ended_but_held' END,
                       CASE WHEN is_held AND (run.lease_until IS NULL OR run.delivery_token IS NULL
                                              OR run.worker_id IS NULL) THEN 'held_without_lease' END,
                       CASE WHEN NOT is_ended AND NOT is_held AND run.lease_until IS NOT NULL THEN 'queued_but_held' END,
                       CASE WHEN is_held AND run.lease_until < v_now - p_lease - p_sweep THEN 'lease_ran_out' END,
                       CASE WHEN is_held AND run.lease_until > v_now + 2 * p_lease
                                 AND (worker.id IS NULL OR worker.stopped_at IS NOT NULL
                                      OR worker.seen_at < v_now - p_worker_ttl) THEN 'lease_too_long' END,
                       -- Times are those at which statements began; one that ends a run may have waited for its claim.
                       CASE WHEN is_ended <> (run.finished_at IS NOT NULL)
                                 OR run.finished_at < run.started_at - interval '1 minute'
                                 OR (run.status = 'completed' AND run.output IS NULL AND run.items_spawned IS NULL)
                                 OR (run.status = 'failed' AND (run.error IS NULL OR run.error IN ('null', '{}', '""')))
                                 OR (run.status = 'skipped' AND run.skip_reason = '')
                            THEN 'ended_wrong' END,
                       CASE WHEN run.failure_count + run.lost_count > run.delivery_count
                                 OR run.failure_count > step.max_retries + 1 OR run.lost_count > step.max_lost + 1
                            THEN 'counts_wrong' END,
                       CASE WHEN step.id IS NULL THEN 'unknown_step' END
                   ],
                   NULL
               ) AS checks
        FROM cb_step_runs AS run
        LEFT JOIN cb_steps AS step ON step.id = run.step_id
        LEFT JOIN cb_flow_runs AS flow_run ON flow_run.id = run.flow_run_id
        LEFT JOIN cb_workers AS worker ON worker.id = run.worker_id AND run.status IN ('started', 'canceling')
        CROSS JOIN LATERAL (
            SELECT run.status IN ('completed', 'failed', 'skipped', 'canceled') AS is_ended,
                   run.status IN ('started', 'canceling') AS is_held
        ) AS state
    )
    SELECT fired.check_id,
           coalesce(judged.flow_name || '.' || judged.name, format('step %s', judged.step_id)),
           'step',
           judged.id,
           CASE fired.check_id
               WHEN 'ended_but_held' THEN format('is %s and still has a lease, until %s', judged.status, judged.lease_until)
               WHEN 'held_without_lease' THEN format('is %s without a token, a lease or a worker', judged.status)
               WHEN 'queued_but_held' THEN format('is %s and has a lease, until %s', judged.status, judged.lease_until)
               WHEN 'lease_ran_out' THEN format('is %s, and its lease ran out at %s', judged.status, judged.lease_until)
               WHEN 'lease_too_long' THEN format('its worker is gone, and its lease goes on until %s', judged.lease_until)
               WHEN 'ended_wrong' THEN format(
                   'is %s, started at %s, finished at %s, and what is stored of its end does not fit',
                   judged.status, coalesce(judged.started_at::text, 'no time'), coalesce(judged.finished_at::text, 'no time')
               )
               WHEN 'counts_wrong' THEN format(
                   'was delivered %s times, failed %s times and was lost %s times',
                   judged.delivery_count, judged.failure_count, judged.lost_count
               )
               ELSE 'is a run of a step that is not registered'
           END
    FROM judged
    CROSS JOIN LATERAL unnest(judged.checks) AS fired (check_id)
    WHERE judged.checks <> '{}';
END;
$$;

-- What single items say of themselves: as far as it can go wrong without the database refusing it.
CREATE OR REPLACE FUNCTION _cb_doctor_items(p_lease interval, p_sweep interval, p_worker_ttl interval)
RETURNS TABLE (check_id text, subject text, run_kind text, run_id bigint, message text)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    v_now timestamptz := _cb_now();
BEGIN
    RETURN QUERY
    WITH judged AS (
        SELECT item.*, flow_run.flow_name, step.name, step.max_retries, step.max_lost, run.status AS step_status,
               flow_run.status AS flow_status,
               item.status IN ('completed', 'failed', 'canceled') AS is_ended,
               item.status IN ('started', 'canceling') AS is_held,
               worker.id IS NULL OR worker.stopped_at IS NOT NULL OR worker.seen_at < v_now - p_worker_ttl AS is_alone
        FROM cb_items AS item
        JOIN cb_step_runs AS run ON run.id = item.step_run_id
        JOIN cb_steps AS step ON step.id = item.step_id
        JOIN cb_flow_runs AS flow_run ON flow_run.id = item.flow_run_id
        LEFT JOIN cb_workers AS worker ON worker.id = item.worker_id
    )
    SELECT fired.check_id, judged.flow_name || '.' || judged.name, 'item', judged.id, fired.message
    FROM judged
    CROSS JOIN LATERAL (
        VALUES
            (is_ended AND lease_until IS NOT NULL, 'ended_but_held', format('is %s and still has a lease', status)),
            (is_held AND (lease_until IS NULL OR delivery_token IS NULL OR worker_id IS NULL), 'held_without_lease',
             format('is %s without a token, a lease or a worker', status)),
            (status = 'queued' AND lease_until IS NOT NULL, 'queued_but_held', 'is queued and has a lease'),
            (is_held AND lease_until < v_now - p_lease - p_sweep, 'lease_ran_out',
             format('is %s, and its lease ran out at %s', status, lease_until)),
            (is_held AND lease_until > v_now + 2 * p_lease AND is_alone, 'lease_too_long',
             format('its worker is gone, and its lease goes on until %s', lease_until)),
            (is_ended <> (finished_at IS NOT NULL) OR finished_at < started_at - interval '1 minute'
                 OR (status = 'completed' AND output IS NULL) OR (status = 'failed' AND error IS NULL),
             'ended_wrong', format('is %s, and what is stored of its end does not fit', status)),
            (failure_count + lost_count > delivery_count OR failure_count > max_retries + 1 OR lost_count > max_lost + 1,
             'counts_wrong', format('was delivered %s times, failed %s times and was lost %s times', delivery_count,
                                    failure_count, lost_count)),
            (NOT is_ended AND step_status IN ('completed', 'failed', 'skipped', 'canceled')
                 AND flow_status NOT IN ('canceling', 'failing', 'completing'),
             'ended_with_live_items', format('is %s, and its step is %s', status, step_status))
    ) AS fired (is_so, check_id, message)
    WHERE fired.is_so;
END;
$$;

-- Maps whose counts a recount does not confirm, whose items have gaps or lie beyond the list, or that ended too early or not
-- at all. While a run is being ended, counts lag behind.
CREATE OR REPLACE FUNCTION _cb_doctor_maps()
RETURNS TABLE (check_id text, subject text, run_kind text, run_id bigint, message text)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY
    WITH counted AS (
        SELECT item.step_run_id, count(*) AS item_count, min(item.index) AS first_index, max(item.index) AS last_index,
               count(*) FILTER (WHERE item.status = 'completed') AS completed,
               count(*) FILTER (WHERE item.status = 'failed') AS failed,
               count(*) FILTER (WHERE item.status = 'canceled') AS canceled
        FROM cb_items AS item
        GROUP BY item.step_run_id
    ), judged AS (
        SELECT run.id, run.status, flow_run.flow_name, flow_run.status AS flow_status, step.name,
               run.items_spawned AS spawned, run.items_completed, run.items_failed, run.items_canceled,
               coalesce(counted.item_count, 0) AS item_count, coalesce(counted.first_index, 0) AS first_index,
               coalesce(counted.last_index + 1, 0) AS end_index, coalesce(counted.completed, 0) AS completed,
               coalesce(counted.failed, 0) AS failed, coalesce(counted.canceled, 0) AS canceled
        FROM cb_step_runs AS run
        JOIN cb_steps AS step ON step.id = run.step_id
        JOIN cb_flow_runs AS flow_run ON flow_run.id = run.flow_run_id
        LEFT JOIN counted ON counted.step_run_id = run.id
        WHERE run.items_spawned IS NOT NULL OR counted.step_run_id IS NOT NULL
    )
    SELECT fired.check_id, judged.flow_name || '.' || judged.name, 'step', judged.id, fired.message
    FROM judged
    CROSS JOIN LATERAL (
        VALUES
            (spawned IS DISTINCT FROM item_count OR first_index <> 0 OR end_index <> item_count, 'items_missing',
             format('goes over %s items, and has %s, from %s to %s', spawned, item_count, first_index, end_index - 1)),
            (flow_status NOT IN ('canceling', 'failing', 'completing')
                 AND (items_completed <> completed OR items_failed <> failed OR items_canceled <> canceled),
             'items_miscounted',
             format('counts %s completed, %s failed and %s canceled items; a recount gives %s, %s and %s',
                    items_completed, items_failed, items_canceled, completed, failed, canceled)),
            ((status = 'completed' AND completed + failed <> spawned)
                 OR (status = 'waiting_for_items' AND completed + failed >= spawned),
             'items_ended_wrong',
             format('is %s with %s of %s items completed and %s failed', status, completed, spawned, failed))
    ) AS fired (is_so, check_id, message)
    WHERE fired.is_so;
END;
$$;

-- Flow runs whose own row does not fit, that have ended with steps that have not, that have nothing left to do and have not
-- ended, or that lack a step.
CREATE OR REPLACE FUNCTION _cb_doctor_flow_runs()
RETURNS TABLE (check_id text, subject text, run_kind text, run_id bigint, message text)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY
    WITH steps AS (
        SELECT step_run.flow_run_id, count(*) AS step_count,
               count(*) FILTER (
                   WHERE step_run.status NOT IN ('completed', 'failed', 'skipped', 'canceled')
                      OR step_run.items_spawned
                          > step_run.items_completed + step_run.items_failed + step_run.items_canceled
               ) AS live_count
        FROM cb_step_runs AS step_run
        GROUP BY step_run.flow_run_id
    ), readiness AS (
        SELECT row.flow_run_id, count(*) AS row_count, count(*) FILTER (WHERE row.step_id IS NULL) AS end_count
        FROM cb_step_readiness AS row
        GROUP BY row.flow_run_id
    ), planned AS (
        SELECT step.flow_id, count(*) AS step_count FROM cb_steps AS step GROUP BY step.flow_id
    ), judged AS (
        SELECT run.id, run.flow_name, run.status, run.finished_at, coalesce(steps.live_count, 0) AS live_count,
               run.status IN ('completed', 'failed', 'skipped', 'canceled', 'expired') AS is_ended,
               run.output, run.output_run_id, run.error, run.outcome, flow.id AS flow_id,
               coalesce(steps.step_count, 0) <> planned.step_count
                   OR coalesce(readiness.row_count, 0) <> planned.step_count + 1
                   OR coalesce(readiness.end_count, 0) <> 1 AS lacks_rows
        FROM cb_flow_runs AS run
        LEFT JOIN steps ON steps.flow_run_id = run.id
        LEFT JOIN readiness ON readiness.flow_run_id = run.id
        LEFT JOIN cb_flows AS flow ON flow.id = run.flow_id
        LEFT JOIN planned ON planned.flow_id = run.flow_id
    )
    SELECT fired.check_id, judged.flow_name, 'flow', judged.id, fired.message
    FROM judged
    CROSS JOIN LATERAL (
        VALUES
            (is_ended AND live_count > 0, 'ended_with_live_steps',
             format('is %s, and %s of its steps are not', status, live_count)),
            (NOT is_ended AND live_count = 0, 'nothing_left_to_do',
             format('is %s, and all of its steps have ended', status)),
            (is_ended <> (finished_at IS NOT NULL) OR (status = 'completed' AND output IS NULL AND output_run_id IS NULL)
                 OR (status = 'failed' AND error IS NULL)
                 OR (status IN ('canceling', 'failing', 'completing') AND outcome = ''), 'ended_wrong',
             format('is %s, and what is stored of its end does not fit', status)),
            (flow_id IS NULL, 'unknown_flow', 'is a run of a flow that is not registered'),
            (coalesce(lacks_rows, false), 'steps_missing', 'has not one run and one row of readiness for each of its steps')
    ) AS fired (is_so, check_id, message)
    WHERE fired.is_so;
END;
$$;

-- Readiness that does not fit the step it belongs to, or that a recount does not confirm: of runs that go on or have
-- completed, because in those that failed or were canceled nobody counts any more.
CREATE OR REPLACE FUNCTION _cb_doctor_readiness()
RETURNS TABLE (check_id text, subject text, run_kind text, run_id bigint, message text)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY
    WITH ended AS (
        SELECT run.flow_run_id, edge.step_id, count(*)::integer AS completed,
               count(*) FILTER (WHERE run.status = 'skipped')::integer AS skipped
        FROM cb_step_runs AS run
        JOIN cb_step_dependencies AS edge ON edge.dependency_id = run.step_id
        WHERE run.status IN ('completed', 'skipped')
        GROUP BY run.flow_run_id, edge.step_id
        UNION ALL
        SELECT run.flow_run_id, NULL, count(*)::integer, count(*) FILTER (WHERE run.status = 'skipped')::integer
        FROM cb_step_runs AS run
        JOIN cb_steps AS step ON step.id = run.step_id AND step.is_final
        WHERE run.status IN ('completed', 'skipped')
        GROUP BY run.flow_run_id
    ), counted AS (
        SELECT flow_run.id, flow_run.flow_name, flow_run.status AS flow_status, flow_run.early_step <> '' AS is_early,
               run.status, step.name,
               readiness.required_count AS required, readiness.completed_count AS completed,
               readiness.skipped_count AS skipped,
               coalesce(step.required_count, flow.final_count) AS planned,
               coalesce(ended.completed, 0) + coalesce((run.signaled_at IS NOT NULL)::integer, 0) AS recounted,
               coalesce(ended.skipped, 0) AS skips
        FROM cb_step_readiness AS readiness
        JOIN cb_flow_runs AS flow_run ON flow_run.id = readiness.flow_run_id
        JOIN cb_flows AS flow ON flow.id = flow_run.flow_id
        LEFT JOIN cb_step_runs AS run ON run.id = readiness.step_run_id
        LEFT JOIN cb_steps AS step ON step.id = readiness.step_id
        LEFT JOIN ended
            ON ended.flow_run_id = readiness.flow_run_id AND ended.step_id IS NOT DISTINCT FROM readiness.step_id
    )
    SELECT fired.check_id, counted.flow_name || '.' || coalesce(counted.name, '(end)'), 'flow', counted.id, fired.message
    FROM counted
    CROSS JOIN LATERAL (
        VALUES
            (NOT (0 <= skipped AND skipped <= completed AND completed <= required)
                 OR (status IN ('waiting_for_dependencies', 'waiting_for_signal', 'waiting_for_state')
                     AND completed >= required)
                 OR ((status IN ('waiting_for_items', 'queued', 'started', 'canceling') OR status = 'completed')
                     AND completed <> required)
                 OR (name IS NULL AND completed = required AND flow_status = 'started'),
             'readiness_wrong',
             format('has %s of %s, %s of them skipped, and is %s', completed, required, skipped,
                    coalesce(status, flow_status))),
            (flow_status IN ('started', 'completed') AND NOT is_early
                 AND (completed <> recounted OR skipped <> skips OR required <> planned),
             'readiness_miscounted',
             format('counts %s of %s, %s of them skipped; a recount gives %s of %s, %s of them skipped', completed,
                    required, skipped, recounted, planned, skips))
    ) AS fired (is_so, check_id, message)
    WHERE fired.is_so;
END;
$$;

-- Steps whose signal was accepted too often or twice from one person, that count it without enough that were accepted, or
-- the other way round (invariant 11).
CREATE OR REPLACE FUNCTION _cb_doctor_signals()
RETURNS TABLE (check_id text, subject text, run_kind text, run_id bigint, message text)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY
    WITH accepted AS (
        SELECT given.flow_run_id, given.step, count(*) AS given_count,
               count(given.actor) FILTER (WHERE given.actor <> '')
                   - count(DISTINCT given.actor) FILTER (WHERE given.actor <> '') AS repeated
        FROM cb_signals AS given
        WHERE given.verdict = 'accepted'
        GROUP BY given.flow_run_id, given.step
    ), waited AS (
        SELECT run.id, run.flow_run_id, step.name, run.signaled_at,
               coalesce((step.signal ->> 'quorum')::integer, 1) AS quorum
        FROM cb_step_runs AS run
        JOIN cb_steps AS step ON step.id = run.step_id
        WHERE step.signal IS NOT NULL
    )
    SELECT 'signal_wrong', format('%s.%s', flow_run.flow_name, coalesce(accepted.step, waited.name)), 'flow',
           coalesce(accepted.flow_run_id, waited.flow_run_id),
           format('%s signals were accepted, and the step %s', coalesce(accepted.given_count, 0),
                  CASE WHEN waited.signaled_at IS NULL THEN 'has none' ELSE 'counts one' END)
    FROM accepted
    FULL JOIN waited ON waited.flow_run_id = accepted.flow_run_id AND waited.name = accepted.step
    LEFT JOIN cb_flow_runs AS flow_run ON flow_run.id = coalesce(accepted.flow_run_id, waited.flow_run_id)
    WHERE waited.id IS NULL
       OR coalesce(accepted.repeated, 0) > 0
       OR coalesce(accepted.given_count, 0) > waited.quorum
       OR (waited.signaled_at IS NULL AND coalesce(accepted.given_count, 0) >= waited.quorum)
       OR (waited.signaled_at IS NOT NULL AND coalesce(accepted.given_count, 0) = 0);
END;
$$;

-- Rows of flows that belong to a run that is gone.
CREATE OR REPLACE FUNCTION _cb_doctor_flow_orphans(p_limit integer)
RETURNS TABLE (check_id text, subject text, run_kind text, run_id bigint, message text)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY
    SELECT 'orphan', orphan.subject, orphan.run_kind, orphan.run_id, orphan.what || ' of a run that is gone'
    FROM (
        (SELECT format('cb_step_runs %s', part.id) AS subject, 'flow' AS run_kind, part.flow_run_id AS run_id, 'step' AS what
         FROM cb_step_runs AS part
         WHERE NOT EXISTS (SELECT FROM cb_flow_runs AS run WHERE run.id = part.flow_run_id)
         LIMIT p_limit)
        UNION ALL
        (SELECT format('cb_step_readiness %s', part.id), 'flow', part.flow_run_id, 'readiness'
         FROM cb_step_readiness AS part
         WHERE NOT EXISTS (SELECT FROM cb_flow_runs AS run WHERE run.id = part.flow_run_id)
            OR (part.step_run_id IS NOT NULL
                AND NOT EXISTS (SELECT FROM cb_step_runs AS run WHERE run.id = part.step_run_id))
         LIMIT p_limit)
        UNION ALL
        (SELECT format('cb_step_inputs %s', part.id), 'step', part.step_run_id, 'input'
         FROM cb_step_inputs AS part
         WHERE NOT EXISTS (SELECT FROM cb_step_runs AS run WHERE run.id = part.step_run_id)
            OR NOT EXISTS (SELECT FROM cb_step_runs AS run WHERE run.id = part.source_run_id)
         LIMIT p_limit)
        UNION ALL
        -- A refused signal may name a run that never was.
        (SELECT format('cb_signals %s', part.id), 'flow', part.flow_run_id, 'accepted signal'
         FROM cb_signals AS part
         WHERE part.verdict = 'accepted' AND NOT EXISTS (SELECT FROM cb_flow_runs AS run WHERE run.id = part.flow_run_id)
         LIMIT p_limit)
        UNION ALL
        (SELECT format('cb_events %s', part.id), part.run_kind, part.run_id, 'event ' || part.event
         FROM cb_events AS part
         WHERE part.run_kind IN ('flow', 'step', 'item') AND NOT _cb_is_flow_row(part.run_kind, part.run_id)
         LIMIT p_limit)
        UNION ALL
        (SELECT format('cb_items %s', part.id), 'step', part.step_run_id, 'item'
         FROM cb_items AS part
         WHERE NOT EXISTS (
             SELECT FROM cb_step_runs AS run WHERE run.id = part.step_run_id AND run.flow_run_id = part.flow_run_id
         )
         LIMIT p_limit)
        UNION ALL
        (SELECT format('cb_run_logs %s', part.id), part.run_kind, part.run_id, 'log line'
         FROM cb_run_logs AS part
         WHERE part.run_kind IN ('flow', 'step', 'item') AND NOT _cb_is_flow_row(part.run_kind, part.run_id)
         LIMIT p_limit)
        UNION ALL
        (SELECT format('cb_run_tags %s', part.id), part.run_kind, part.run_id, 'tag'
         FROM cb_run_tags AS part
         WHERE part.run_kind IN ('flow', 'step') AND NOT _cb_is_flow_row(part.run_kind, part.run_id)
         LIMIT p_limit)
    ) AS orphan;
END;
$$;

-- Whether there is a flow run, a step run or an item of this id.
CREATE OR REPLACE FUNCTION _cb_is_flow_row(p_run_kind text, p_run_id bigint)
RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT CASE p_run_kind
        WHEN 'flow' THEN EXISTS (SELECT FROM cb_flow_runs AS run WHERE run.id = p_run_id)
        WHEN 'item' THEN EXISTS (SELECT FROM cb_items AS item WHERE item.id = p_run_id)
        ELSE EXISTS (SELECT FROM cb_step_runs AS run WHERE run.id = p_run_id)
    END
$$;

-- Due steps that no worker runs which is alive. One that runs a step of that name may know another version of it, so beside
-- an idle worker a step may wait.
CREATE OR REPLACE FUNCTION _cb_doctor_due_steps(p_worker_ttl interval)
RETURNS TABLE (check_id text, subject text, run_kind text, run_id bigint, message text)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY
    WITH due AS (
        SELECT run.queue, run.step_id, count(*) AS run_count, min(run.id) AS oldest_id
        FROM cb_step_runs AS run
        WHERE run.status = 'queued' AND run.visible_at IS NULL
        GROUP BY run.queue, run.step_id
        UNION ALL
        SELECT item.queue, item.step_id, count(*), min(item.step_run_id)
        FROM cb_items AS item
        WHERE item.status = 'queued' AND item.visible_at IS NULL
        GROUP BY item.queue, item.step_id
    )
    SELECT 'nobody_runs_it', flow.name || '.' || step.name, 'step', due.oldest_id,
           format('%s due in queue %s, and no worker that is alive runs the step', due.run_count, due.queue)
    FROM due
    JOIN cb_steps AS step ON step.id = due.step_id
    JOIN cb_flows AS flow ON flow.id = step.flow_id
    WHERE NOT EXISTS (
        SELECT FROM cb_workers AS worker
        WHERE worker.stopped_at IS NULL AND worker.draining_since IS NULL AND worker.seen_at > _cb_now() - p_worker_ttl
          AND worker.handlers ? (flow.name || '.' || step.name)
          AND (worker.queues IS NULL OR worker.queues ? due.queue)
    );
END;
$$;
