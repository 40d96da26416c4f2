-- on_fail: a task that is run when a run has failed for good (T11), also when its condition could not be decided.
--
-- It is a run of its own, queued in the transaction that failed the other, so that neither comes without the other. The
-- failed run stays failed. A run that is itself such an answer does not lead to another one, or two tasks that answer for
-- each other would never end.
--
-- Locks: none; it only inserts.

-- Queue the on_fail runs of those of these failed runs whose task has one. Returns their queues. Where the task that
-- should answer is not registered, an event of the failed run says so.
CREATE OR REPLACE FUNCTION _cb_run_on_fail(p_run_ids bigint[])
RETURNS text[]
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_queues text[];
    v_unanswered bigint[];
BEGIN
    WITH failed AS (
        SELECT run.id, run.priority, run.headers, answer.id AS answer_id, answer.queue,
               pg_catalog.jsonb_build_object(
                   'run_id', run.id,
                   'task', task.name,
                   'input', run.input,
                   'error', run.error,
                   'attempts', run.failure_count + run.lost_count
               ) AS failure
        FROM cb_task_runs AS run
        JOIN cb_tasks AS task ON task.id = run.task_id
        LEFT JOIN cb_tasks AS answer ON answer.name = task.on_fail
        WHERE run.id = ANY (p_run_ids) AND run.role <> 'on_fail' AND task.on_fail <> ''
    ), answered AS (
        INSERT INTO cb_task_runs AS run (task_id, queue, priority, input, headers, origin_id, role, queued_at)
        SELECT failed.answer_id, failed.queue, failed.priority, failed.failure, failed.headers, failed.id, 'on_fail',
               _cb_now()
        FROM failed
        WHERE failed.answer_id IS NOT NULL
        ORDER BY failed.id
        RETURNING run.id, run.origin_id, run.queue
    ), noted AS (
        -- The caller does not say whether all events are wanted; those of the failed run do.
        INSERT INTO cb_events (at, run_kind, run_id, event, to_status, actor)
        SELECT _cb_now(), 'task', answered.id, 'queued', 'queued', 'worker'
        FROM answered
        WHERE EXISTS (
            SELECT FROM cb_events AS born
            WHERE born.run_kind = 'task' AND born.run_id = answered.origin_id AND born.event = 'queued'
        )
    )
    SELECT (SELECT pg_catalog.array_agg(DISTINCT answered.queue) FROM answered),
           (SELECT pg_catalog.array_agg(failed.id) FROM failed WHERE failed.answer_id IS NULL)
    INTO v_queues, v_unanswered;

    PERFORM _cb_note_task_events('on_fail_unknown', v_unanswered, 'failed', 'failed', 'worker');
    RETURN coalesce(v_queues, ARRAY[]::text[]);
END;
$$;
