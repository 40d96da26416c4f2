-- Explain: why a run does not go on (F25).
--
-- For every step that has not ended, each thing that it waits for, as data. Read-only.
--
-- Locks: none.

-- What each unfinished step of a run waits for: one row per unmet requirement, in the order of the flow. requirement is
-- 'dependency' (subject: the step), 'signal' (detail: who may give it), 'timer' (detail: until when, and why), 'worker' (none
-- that is alive has its handler), 'slot' (a worker has, and is busy), 'items' (detail: how many there are, how many have
-- completed, failed and been canceled, and how many workers have its handler), 'running' (subject: the worker) or 'stopping'.
CREATE OR REPLACE FUNCTION cb_explain_flow(p_run_id bigint, p_worker_ttl interval DEFAULT interval '5 minutes')
RETURNS TABLE (step text, status text, requirement text, subject text, detail jsonb)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY
    SELECT step.name, run.status, needed.requirement, needed.subject, needed.detail
    FROM cb_step_runs AS run
    JOIN cb_steps AS step ON step.id = run.step_id
    JOIN cb_flow_runs AS flow_run ON flow_run.id = run.flow_run_id
    LEFT JOIN cb_workers AS worker ON worker.id = run.worker_id
    CROSS JOIN LATERAL (
        SELECT 'dependency', dependency.name, jsonb_build_object('status', other.status)
        FROM cb_step_dependencies AS edge
        JOIN cb_steps AS dependency ON dependency.id = edge.dependency_id
        JOIN cb_step_runs AS other ON other.flow_run_id = run.flow_run_id AND other.step_id = edge.dependency_id
        WHERE edge.step_id = run.step_id AND run.status = 'waiting_for_dependencies'
          AND other.status NOT IN ('completed', 'skipped')
        UNION ALL
        SELECT 'signal', step.name,
               jsonb_build_object(
                   'permission', step.signal -> 'permission', 'groups', step.signal -> 'groups',
                   'users', step.signal -> 'users', 'quorum', step.signal -> 'quorum',
                   'given', (
                       SELECT count(*) FROM cb_signals AS given
                       WHERE given.flow_run_id = run.flow_run_id AND given.step = step.name AND given.verdict = 'accepted'
                   ),
                   'due', run.signal_due_at,
                   'escalated_to', CASE WHEN run.signal_overdue_at IS NOT NULL THEN step.signal ->> 'escalate_to' END
               )
        WHERE step.signal IS NOT NULL AND run.signaled_at IS NULL
          AND run.status IN ('waiting_for_dependencies', 'waiting_for_signal')
        UNION ALL
        SELECT 'timer', NULL,
               jsonb_build_object(
                   'until', run.visible_at,
                   'why', CASE WHEN run.failure_count > 0 THEN 'retry' WHEN run.delivery_count > 0 THEN 'released' ELSE 'delay' END
               )
        WHERE run.status = 'queued' AND run.visible_at IS NOT NULL
        UNION ALL
        SELECT CASE WHEN alive.with_handler > 0 THEN 'slot' ELSE 'worker' END, NULL,
               jsonb_build_object('queue', run.queue, 'workers', alive.with_handler, 'since', run.queued_at)
        FROM (
            SELECT _cb_count_handlers(flow_run.flow_name, step.name, run.queue, p_worker_ttl) AS with_handler
        ) AS alive
        WHERE run.status = 'queued' AND run.visible_at IS NULL
        UNION ALL
        SELECT 'items', NULL,
               jsonb_build_object(
                   'spawned', run.items_spawned, 'completed', run.items_completed, 'failed', run.items_failed,
                   'canceled', run.items_canceled, 'workers', _cb_count_handlers(flow_run.flow_name, step.name, run.queue, p_worker_ttl)
               )
        WHERE run.status = 'waiting_for_items'
        UNION ALL
        SELECT CASE run.status WHEN 'started' THEN 'running' ELSE 'stopping' END, worker.host || ':' || worker.pid,
               jsonb_build_object('worker_id', run.worker_id, 'since', run.started_at, 'lease_until', run.lease_until)
        WHERE run.status IN ('started', 'canceling')
    ) AS needed (requirement, subject, detail)
    WHERE run.flow_run_id = p_run_id AND run.finished_at IS NULL
    ORDER BY step.position, needed.requirement, needed.subject;
END;
$$;

-- How many workers that are alive have the handler of a step, and serve this queue.
CREATE OR REPLACE FUNCTION _cb_count_handlers(p_flow text, p_step text, p_queue text, p_worker_ttl interval)
RETURNS bigint
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT count(*)
    FROM cb_workers AS worker
    WHERE worker.stopped_at IS NULL AND worker.seen_at > _cb_now() - p_worker_ttl
      AND worker.handlers ? (p_flow || '.' || p_step)
      AND (worker.queues IS NULL OR worker.queues ? p_queue)
$$;
