-- The doctor: looks for what cannot be, and for what keeps the database from doing its work (W10).
--
-- Every check is a query that finds nothing in a healthy database. An 'error' is a broken promise: a state that no function
-- of ours leaves behind, or work that nobody moves. A 'warning' is trouble to come. Nothing is written and nothing is
-- locked; the runs are read once for all checks of single runs, and at most p_limit findings of each check come back.

-- Examine the database: one row per finding, none when all is well. p_lease, p_sweep and p_worker_ttl are the settings
-- that the workers use; p_patience is how long due work may wait beside an idle worker; p_is_notifying says whether
-- workers are meant to be woken by NOTIFY.
CREATE OR REPLACE FUNCTION cb_doctor(
    p_lease interval DEFAULT '30 seconds',
    p_sweep interval DEFAULT '5 seconds',
    p_worker_ttl interval DEFAULT '5 minutes',
    p_patience interval DEFAULT '1 minute',
    p_is_notifying boolean DEFAULT true,
    p_limit integer DEFAULT 100
)
RETURNS TABLE (
    check_id text,
    severity text,
    subject text,
    run_kind text,
    run_id bigint,
    message text,
    advice text
)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY
    WITH found_in_tasks AS (
        SELECT * FROM _cb_doctor_runs(p_lease, p_sweep, p_worker_ttl)
        UNION ALL SELECT * FROM _cb_doctor_keys()
        UNION ALL SELECT * FROM _cb_doctor_orphans(p_limit)
        UNION ALL SELECT * FROM _cb_doctor_waiting(p_worker_ttl, p_patience)
        UNION ALL SELECT * FROM _cb_doctor_workers(p_worker_ttl, p_is_notifying)
        UNION ALL SELECT * FROM _cb_doctor_database()
    ), found AS (
        SELECT task.check_id, task.subject, CASE WHEN task.run_id IS NULL THEN '' ELSE 'task' END AS run_kind, task.run_id,
               task.message
        FROM found_in_tasks AS task
        UNION ALL SELECT * FROM _cb_doctor_flows(p_lease, p_sweep, p_worker_ttl, p_limit)
        UNION ALL SELECT * FROM _cb_doctor_history()
    ), numbered AS (
        SELECT found.*, row_number() OVER (PARTITION BY found.check_id ORDER BY found.run_id, found.subject) AS place
        FROM found
    )
    SELECT known.check_id, known.severity, numbered.subject, numbered.run_kind, numbered.run_id, numbered.message,
           known.advice
    FROM numbered
    JOIN _cb_doctor_checks() AS known USING (check_id)
    WHERE numbered.place <= p_limit
    ORDER BY known.severity, known.place, numbered.place;
END;
$$;

-- Every check: how bad a finding is, and what to do about it.
CREATE OR REPLACE FUNCTION _cb_doctor_checks()
RETURNS TABLE (check_id text, severity text, place integer, advice text)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    VALUES
        ('ended_but_held', 'error', 1, 'A function other than ours has written the row. Set lease_until to NULL.'),
        ('held_without_lease', 'error', 2, 'No worker can settle it and nobody takes it back. Set it back to queued.'),
        ('queued_but_held', 'error', 3, 'A function other than ours has written the row. Set lease_until to NULL.'),
        ('lease_ran_out', 'error', 4, 'No worker takes back what was lost: start one, or see in its log why the upkeep fails.'),
        ('lease_too_long', 'error', 5, 'Its worker is gone and its lease is not: set lease_until to now.'),
        ('ended_wrong', 'error', 6, 'Times or result do not fit the status: a function other than ours has written the row.'),
        ('counts_wrong', 'error', 7, 'More attempts than the task allows, or than were delivered: report this.'),
        ('unknown_task', 'error', 8, 'The row of its task was removed: start a process that declares it, or remove the run.'),
        ('unknown_step', 'error', 26, 'The row of its step was removed. Bring it back from a backup, or remove the run.'),
        ('unknown_flow', 'error', 27, 'The row of its flow was removed. Bring it back from a backup, or remove the run.'),
        ('ended_with_live_steps', 'error', 28, 'Its steps will be run for nothing. Cancel them, and report this.'),
        ('nothing_left_to_do', 'error', 29, 'It will never end by itself. Look at its events, cancel it, and report this.'),
        ('steps_missing', 'error', 30, 'Rows of the run were removed, and it cannot go on. Cancel it.'),
        ('readiness_wrong', 'error', 31, 'A step runs too early, or never. Look at the events of the run, and report this.'),
        ('readiness_miscounted', 'error', 32, 'A step will run too early, or never. Report this; cancel the run, and retry it.'),
        ('signal_wrong', 'error', 33, 'A decision counts twice, or not at all. Look at the signals of the run, and report this.'),
        ('ended_with_live_items', 'error', 34, 'Its items will be run for nothing. Cancel the run, and report this.'),
        ('items_missing', 'error', 35, 'Items of a map were removed, or made twice. Cancel the run, and retry it.'),
        ('items_miscounted', 'error', 36, 'A map will end too early, or never. Report this; cancel the run, and retry it.'),
        ('items_ended_wrong', 'error', 37, 'A map ended too early, or does not end. Look at its items, and report this.'),
        ('completed_twice', 'error', 9, 'Its effect may have happened twice. Look at the events of the run, and report this.'),
        ('left_its_end', 'error', 10, 'An ended run was changed again. Look at the events of the run, and report this.'),
        ('token_used_twice', 'error', 11, 'Two deliveries share a token. Look at the events of the run, and report this.'),
        ('settled_by_stranger', 'error', 12, 'Settled by a claim that was not current. Look at its events, and report this.'),
        ('deliveries_wrong', 'error', 13, 'The row and the events count claims differently. Report this.'),
        ('key_taken_twice', 'error', 14, 'A unique index is missing or broken: make it again (migrate, REINDEX), then cancel one.'),
        ('orphan', 'error', 15, 'It belongs to a run that is gone. Remove the row.'),
        ('due_beside_idle_worker', 'error', 16, 'A worker could run it and does not: see its log, restart it, and report this.'),
        ('invalid_index', 'error', 17, 'REINDEX INDEX CONCURRENTLY makes it valid again.'),
        ('nobody_runs_it', 'warning', 18, 'Start a worker whose code has the task, and whose --queues and --tasks let it in.'),
        ('polls_only', 'warning', 19, 'NOTIFY does not reach it, so it finds work later: behind a pooler set LISTEN_DSN.'),
        ('old_transaction', 'warning', 20, 'It keeps dead rows from being removed, and claims get slower: end it.'),
        ('notify_queue', 'warning', 21, 'A session listens and does not read: end the oldest one. A full queue refuses commits.'),
        ('dead_rows', 'warning', 22, 'VACUUM the table; see that autovacuum is on and that no transaction is old.'),
        ('unsafe_setting', 'warning', 23, 'After a crash of the server, committed work may be lost or damaged. Turn it on.'),
        ('unlogged_table', 'warning', 24, 'It is emptied by a crash of the server: ALTER TABLE … SET LOGGED.'),
        ('vacuum_not_permitted', 'warning', 25, 'This role may not VACUUM the table, so only autovacuum does. Own it, or ignore this.')
$$;

-- What single runs say of themselves. One pass over all runs.
CREATE OR REPLACE FUNCTION _cb_doctor_runs(p_lease interval, p_sweep interval, p_worker_ttl interval)
RETURNS TABLE (check_id text, subject text, run_id bigint, message text)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    v_now timestamptz := _cb_now();
BEGIN
    RETURN QUERY
    WITH judged AS (
        SELECT run.id, run.status, run.lease_until, run.started_at, run.finished_at, run.delivery_count,
               run.failure_count, run.lost_count, run.task_id, task.name,
               array_remove(
                   ARRAY[
                       CASE WHEN is_ended AND run.lease_until IS NOT NULL THEN 'ended_but_held' END,
                       CASE WHEN is_held AND (run.lease_until IS NULL OR run.delivery_token IS NULL
                                              OR run.worker_id IS NULL) THEN 'held_without_lease' END,
                       CASE WHEN run.status = 'queued' AND run.lease_until IS NOT NULL THEN 'queued_but_held' END,
                       -- Renewed a lease ago at the latest: twice the lease and a sweep after that it should be back.
                       CASE WHEN is_held AND run.lease_until < v_now - p_lease - p_sweep THEN 'lease_ran_out' END,
                       CASE WHEN is_held AND run.lease_until > v_now + 2 * p_lease
                                 AND (worker.id IS NULL OR worker.stopped_at IS NOT NULL
                                      OR worker.seen_at < v_now - p_worker_ttl) THEN 'lease_too_long' END,
                       -- Times are those at which statements began; one that ends a run may have waited for its claim.
                       CASE WHEN is_ended <> (run.finished_at IS NOT NULL)
                                 OR run.finished_at < run.started_at - interval '1 minute'
                                 OR (run.status = 'completed' AND run.output IS NULL)
                                 OR (run.status = 'failed' AND (run.error IS NULL OR run.error IN ('null', '{}', '""')))
                            THEN 'ended_wrong' END,
                       CASE WHEN run.failure_count + run.lost_count > run.delivery_count
                                 -- What a run may is what its task said when it was queued, as far as we still know.
                                 OR (task.registered_at <= run.queued_at
                                     AND (run.failure_count > task.max_retries + 1
                                          OR run.lost_count > task.max_lost + 1))
                            THEN 'counts_wrong' END,
                       CASE WHEN task.id IS NULL THEN 'unknown_task' END
                   ],
                   NULL
               ) AS checks
        FROM cb_task_runs AS run
        LEFT JOIN cb_tasks AS task ON task.id = run.task_id
        LEFT JOIN cb_workers AS worker ON worker.id = run.worker_id AND run.status IN ('started', 'canceling')
        CROSS JOIN LATERAL (
            SELECT run.status IN ('completed', 'failed', 'skipped', 'canceled', 'expired') AS is_ended,
                   run.status IN ('started', 'canceling') AS is_held
        ) AS state
    )
    SELECT fired.check_id,
           coalesce(judged.name, format('task %s', judged.task_id)),
           judged.id,
           CASE fired.check_id
               WHEN 'ended_but_held' THEN format('is %s and still has a lease, until %s', judged.status, judged.lease_until)
               WHEN 'held_without_lease' THEN format('is %s without a token, a lease or a worker', judged.status)
               WHEN 'queued_but_held' THEN format('is queued and has a lease, until %s', judged.lease_until)
               WHEN 'lease_ran_out' THEN format('is %s, and its lease ran out at %s', judged.status, judged.lease_until)
               WHEN 'lease_too_long' THEN format('its worker is gone, and its lease goes on until %s', judged.lease_until)
               WHEN 'ended_wrong' THEN format(
                   'is %s, started at %s, finished at %s, and its output or error does not fit',
                   judged.status, coalesce(judged.started_at::text, 'no time'), coalesce(judged.finished_at::text, 'no time')
               )
               WHEN 'counts_wrong' THEN format(
                   'was delivered %s times, failed %s times and was lost %s times',
                   judged.delivery_count, judged.failure_count, judged.lost_count
               )
               ELSE 'is a run of a task that is not registered'
           END
    FROM judged
    CROSS JOIN LATERAL unnest(judged.checks) AS fired (check_id)
    WHERE judged.checks <> '{}';
END;
$$;

-- What the events of runs say, of runs whose events begin with their birth (EVENTS = "all"): of tasks, steps and items.
CREATE OR REPLACE FUNCTION _cb_doctor_history()
RETURNS TABLE (check_id text, subject text, run_kind text, run_id bigint, message text)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY
    WITH complete AS (
        SELECT born.run_kind, born.run_id, coalesce(run.delivery_count, step_run.delivery_count, item.delivery_count) AS delivery_count,
               coalesce(run.task_id, step_run.step_id, item.step_id) AS handler_id
        FROM cb_events AS born
        LEFT JOIN cb_task_runs AS run ON born.run_kind = 'task' AND run.id = born.run_id
        LEFT JOIN cb_step_runs AS step_run ON born.run_kind = 'step' AND step_run.id = born.run_id
        LEFT JOIN cb_items AS item ON born.run_kind = 'item' AND item.id = born.run_id
        WHERE born.event = 'queued' AND born.from_status = '' AND coalesce(run.id, step_run.id, item.id) IS NOT NULL
    ), change AS (
        -- Ids of one run's events are drawn under its row lock: they are in the order of its changes.
        SELECT event.run_kind, event.run_id, event.id, event.from_status, event.to_status, event.delivery_token,
               event.actor, complete.delivery_count, complete.handler_id,
               count(*) FILTER (WHERE event.event = 'claimed') OVER run AS claim_number
        FROM cb_events AS event
        JOIN complete ON complete.run_kind = event.run_kind AND complete.run_id = event.run_id
        WHERE event.to_status <> ''
        WINDOW run AS (PARTITION BY event.run_kind, event.run_id ORDER BY event.id)
    ), told AS (
        SELECT change.*,
               CASE WHEN claim_number > 0 THEN first_value(delivery_token) OVER delivery END AS claimed_token,
               min(id) FILTER (
                   WHERE to_status IN ('completed', 'failed', 'skipped', 'canceled', 'expired')
               ) OVER (PARTITION BY change.run_kind, change.run_id) AS ended_by
        FROM change
        WINDOW delivery AS (PARTITION BY change.run_kind, change.run_id, claim_number ORDER BY id)
    ), judged AS (
        SELECT told.run_kind, told.run_id, told.handler_id, told.delivery_count,
               count(*) FILTER (WHERE to_status = 'completed') AS completions,
               count(*) FILTER (WHERE id > ended_by AND from_status IS DISTINCT FROM to_status) AS late,
               max(claim_number) AS claims,
               count(*) FILTER (WHERE to_status = 'started' AND from_status = 'queued')
                   - count(DISTINCT delivery_token) FILTER (WHERE to_status = 'started' AND from_status = 'queued') AS repeated,
               count(*) FILTER (
                   WHERE actor = 'worker' AND from_status = 'started' AND to_status IN ('completed', 'failed', 'queued')
                     AND delivery_token IS NOT NULL AND delivery_token <> claimed_token
               ) AS strange
        FROM told
        GROUP BY told.run_kind, told.run_id, told.handler_id, told.delivery_count
    ), ended_flow AS (
        -- Of flow runs only their ends are noted, whichever events are written.
        SELECT event.run_id, min(event.id) AS ended_by
        FROM cb_events AS event
        WHERE event.run_kind = 'flow' AND event.to_status IN ('completed', 'failed', 'skipped', 'canceled', 'expired')
        GROUP BY event.run_id
    )
    SELECT fired.check_id, coalesce(task.name, step.name, format('%s %s', judged.run_kind, judged.handler_id)),
           judged.run_kind, judged.run_id, fired.message
    FROM judged
    LEFT JOIN cb_tasks AS task ON judged.run_kind = 'task' AND task.id = judged.handler_id
    LEFT JOIN cb_steps AS step ON judged.run_kind IN ('step', 'item') AND step.id = judged.handler_id
    CROSS JOIN LATERAL (
        VALUES
            (completions > 1, 'completed_twice', format('was completed %s times', completions)),
            (late > 0, 'left_its_end', format('was changed %s times after it had ended', late)),
            (repeated > 0, 'token_used_twice', 'was claimed twice under one token'),
            (strange > 0, 'settled_by_stranger', 'was settled by a claim that was not the current one'),
            -- None at all: a worker that writes notable events only.
            (claims > 0 AND claims <> judged.delivery_count, 'deliveries_wrong',
             format('was claimed %s times and counts %s deliveries', claims, judged.delivery_count))
    ) AS fired (is_so, check_id, message)
    WHERE (completions > 1 OR late > 0 OR repeated > 0 OR strange > 0 OR claims <> judged.delivery_count) AND fired.is_so
    UNION ALL
    SELECT 'left_its_end', run.flow_name, 'flow', run.id, format('was changed %s times after it had ended', count(*))
    FROM ended_flow
    JOIN cb_flow_runs AS run ON run.id = ended_flow.run_id
    JOIN cb_events AS event ON event.run_kind = 'flow' AND event.run_id = run.id AND event.id > ended_flow.ended_by
    WHERE event.from_status <> event.to_status
    GROUP BY run.id, run.flow_name;
END;
$$;

-- Keys that more than one run has, though unique indexes forbid it.
CREATE OR REPLACE FUNCTION _cb_doctor_keys()
RETURNS TABLE (check_id text, subject text, run_id bigint, message text)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY
    WITH taken AS (
        SELECT 'concurrency key' AS kind, run.task_id, run.id, concurrency_key AS key
        FROM cb_task_runs AS run
        WHERE concurrency_key IS NOT NULL AND status IN ('queued', 'started', 'canceling')
        UNION ALL
        SELECT 'idempotency key', run.task_id, run.id, idempotency_key
        FROM cb_task_runs AS run
        WHERE idempotency_key IS NOT NULL AND status IN ('queued', 'started', 'canceling', 'completed', 'skipped')
        UNION ALL
        SELECT 'debounce key', run.task_id, run.id, debounce_key
        FROM cb_task_runs AS run
        WHERE debounce_key IS NOT NULL AND status = 'queued'
    )
    SELECT 'key_taken_twice', coalesce(max(task.name), format('task %s', taken.task_id)), min(taken.id),
           format('%s runs have one %s', count(*), taken.kind)
    FROM taken
    LEFT JOIN cb_tasks AS task ON task.id = taken.task_id
    GROUP BY taken.kind, taken.task_id, taken.key
    HAVING count(*) > 1;
END;
$$;

-- Events, log lines, tags and breakers whose run or task is gone.
CREATE OR REPLACE FUNCTION _cb_doctor_orphans(p_limit integer)
RETURNS TABLE (check_id text, subject text, run_id bigint, message text)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY
    (SELECT 'orphan', format('cb_events %s', part.id), part.run_id, format('event %s of a run that is gone', part.event)
     FROM cb_events AS part
     WHERE part.run_kind = 'task' AND NOT EXISTS (SELECT FROM cb_task_runs AS run WHERE run.id = part.run_id)
     LIMIT p_limit)
    UNION ALL
    (SELECT 'orphan', format('cb_run_logs %s', part.id), part.run_id, 'log line of a run that is gone'
     FROM cb_run_logs AS part
     WHERE part.run_kind = 'task' AND NOT EXISTS (SELECT FROM cb_task_runs AS run WHERE run.id = part.run_id)
     LIMIT p_limit)
    UNION ALL
    (SELECT 'orphan', format('cb_run_tags %s', part.id), part.run_id, 'tag of a run that is gone'
     FROM cb_run_tags AS part
     WHERE part.run_kind = 'task' AND NOT EXISTS (SELECT FROM cb_task_runs AS run WHERE run.id = part.run_id)
     LIMIT p_limit)
    UNION ALL
    (SELECT 'orphan', format('cb_breakers %s', part.id), NULL, 'circuit breaker of a task that is gone'
     FROM cb_breakers AS part
     WHERE NOT EXISTS (SELECT FROM cb_tasks AS task WHERE task.id = part.task_id)
     LIMIT p_limit);
END;
$$;

-- Due runs that nobody can run, and those that an idle worker leaves alone. Of tasks with limits or an open breaker only
-- the former: waiting is what they are for.
CREATE OR REPLACE FUNCTION _cb_doctor_waiting(p_worker_ttl interval, p_patience interval)
RETURNS TABLE (check_id text, subject text, run_id bigint, message text)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    v_now timestamptz := _cb_now();
BEGIN
    RETURN QUERY
    WITH alive AS (
        SELECT worker.id, worker.queues, worker.handlers, worker.started_at
        FROM cb_workers AS worker
        WHERE worker.stopped_at IS NULL AND worker.draining_since IS NULL AND worker.seen_at > v_now - p_worker_ttl
    ), busy AS (
        SELECT run.worker_id AS id
        FROM cb_task_runs AS run
        WHERE run.worker_id IN (SELECT alive.id FROM alive)
          AND (run.status IN ('started', 'canceling') OR run.started_at > v_now - p_patience
               OR run.finished_at > v_now - p_patience)
        GROUP BY run.worker_id
        UNION
        SELECT run.worker_id
        FROM cb_step_runs AS run
        WHERE run.worker_id IN (SELECT alive.id FROM alive)
          AND (run.status IN ('started', 'canceling') OR run.started_at > v_now - p_patience
               OR run.finished_at > v_now - p_patience)
        UNION
        SELECT item.worker_id
        FROM cb_items AS item
        WHERE item.worker_id IN (SELECT alive.id FROM alive)
          AND (item.status IN ('started', 'canceling') OR item.started_at > v_now - p_patience
               OR item.finished_at > v_now - p_patience)
    ), due AS (
        SELECT run.queue, run.task_id, count(*) AS run_count, min(run.id) AS oldest_id,
               min(run.id) FILTER (
                   WHERE greatest(run.queued_at, run.run_at, run.started_at) < v_now - p_patience
               ) AS patient_id
        FROM cb_task_runs AS run
        WHERE run.status = 'queued' AND run.visible_at IS NULL
        GROUP BY run.queue, run.task_id
    ), served AS (
        SELECT due.*, task.name,
               EXISTS (
                   SELECT FROM alive
                   WHERE alive.handlers ? task.name AND (alive.queues IS NULL OR alive.queues ? due.queue)
               ) AS has_worker,
               EXISTS (
                   SELECT FROM alive
                   WHERE alive.handlers ? task.name AND (alive.queues IS NULL OR alive.queues ? due.queue)
                     AND alive.started_at < v_now - p_patience AND alive.id NOT IN (SELECT busy.id FROM busy)
               ) AS has_idle_worker,
               task.options ?| ARRAY['max_active', 'max_active_per_key', 'rate', 'rate_limit']
                   OR EXISTS (
                       SELECT FROM cb_breakers AS breaker
                       WHERE breaker.task_id = due.task_id AND breaker.open_until IS NOT NULL
                   ) AS is_held_back
        FROM due
        JOIN cb_tasks AS task ON task.id = due.task_id
    )
    SELECT 'nobody_runs_it', served.name, served.oldest_id,
           format('%s due in queue %s, and no worker that is alive runs the task', served.run_count, served.queue)
    FROM served
    WHERE NOT served.has_worker
    UNION ALL
    SELECT 'due_beside_idle_worker', served.name, served.patient_id,
           format('due in queue %s for more than %s, while a worker that runs the task is idle', served.queue, p_patience)
    FROM served
    WHERE served.has_idle_worker AND NOT served.is_held_back AND served.patient_id IS NOT NULL;
END;
$$;

-- Workers that are alive and that no notification reaches.
CREATE OR REPLACE FUNCTION _cb_doctor_workers(p_worker_ttl interval, p_is_notifying boolean)
RETURNS TABLE (check_id text, subject text, run_id bigint, message text)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY
    SELECT 'polls_only', format('worker %s on %s', worker.id, worker.host), NULL::bigint, 'is not reached by NOTIFY, and polls'
    FROM cb_workers AS worker
    WHERE p_is_notifying AND worker.stopped_at IS NULL AND worker.seen_at > _cb_now() - p_worker_ttl
      AND NOT worker.is_listening
      AND worker.started_at < _cb_now() - interval '2 minutes';
END;
$$;

-- The health of the database itself, as far as this role may see it.
CREATE OR REPLACE FUNCTION _cb_doctor_database()
RETURNS TABLE (check_id text, subject text, run_id bigint, message text)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    v_tables text[] := regexp_split_to_array(_cb_tables(), ',\s*');
BEGIN
    RETURN QUERY
    SELECT 'old_transaction', old.subject, NULL::bigint,
           format('is open since %s (%s)', date_trunc('second', old.since), old.application_name)
    FROM _cb_old_transactions() AS old
    UNION ALL
    SELECT 'notify_queue', 'NOTIFY', NULL, format('its queue is %s %% full', round(100 * pg_notification_queue_usage()))
    WHERE pg_notification_queue_usage() > 0.1
    UNION ALL
    SELECT 'dead_rows', relname::text, NULL, format('has %s dead rows and %s live ones', n_dead_tup, n_live_tup)
    FROM pg_stat_user_tables
    WHERE schemaname = current_schema() AND relname = ANY (v_tables) AND n_dead_tup > 10000 AND n_dead_tup > 0.5 * n_live_tup
    UNION ALL
    SELECT 'unsafe_setting', name, NULL, format('is %s', setting)
    FROM pg_settings
    WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes') AND setting = 'off'
    UNION ALL
    SELECT 'unlogged_table', relation.relname::text, NULL, 'is unlogged'
    FROM pg_class AS relation
    WHERE relation.relnamespace = current_schema()::regnamespace AND relation.relname = ANY (v_tables)
      AND relation.relpersistence = 'u'
    UNION ALL
    SELECT 'invalid_index', entry.indexrelid::regclass::text, NULL, 'is not valid'
    FROM pg_index AS entry
    JOIN pg_class AS relation ON relation.oid = entry.indrelid
    WHERE relation.relnamespace = current_schema()::regnamespace AND relation.relname = ANY (v_tables)
      AND NOT entry.indisvalid
    UNION ALL
    SELECT 'vacuum_not_permitted', relation.relname::text, NULL, format('belongs to %s', relation.relowner::regrole)
    FROM pg_class AS relation
    WHERE relation.relnamespace = current_schema()::regnamespace
      AND relation.relname IN ('cb_task_runs', 'cb_step_runs', 'cb_step_readiness', 'cb_items')
      AND NOT _cb_may_vacuum(relation.oid, relation.relowner);
END;
$$;
