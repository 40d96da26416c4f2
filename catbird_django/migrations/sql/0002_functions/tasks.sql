-- Tasks: register, run, claim, settle.
--
-- A run is one row from birth to retention: queued → started → completed or failed, and back to queued for a retry.
-- A run that waits for its time is queued with visible_at in the future, outside the claim index; the tick makes it due.
--
-- Each function below is one transition of many runs at once, and answers one row per input, in the order given. A claim
-- call makes one uuid; (run id, delivery token) names a delivery, and whoever settles names both. What is no longer
-- theirs changes nothing and is answered 'stale' (R5, R5a).
--
-- Whoever settles waits a moment for a run that somebody else has locked, and no longer: a caller that cancels one run in a
-- long transaction must not hold up what was finished beside it. Then the call has done nothing and raises 55P03
-- (lock_not_available); cb_find_locked_tasks says which runs to leave out, and to try again later.
--
-- Locks: task runs by id; claims skip what is locked and wait for nobody.

-- Make these tasks known, or bring them up to date: a JSON array of objects whose keys are columns of cb_tasks. A task whose
-- fingerprint is already stored is not written. Returns the id of every task, in the order given. Locks: the tasks that
-- change, by name.
CREATE OR REPLACE FUNCTION cb_register_tasks(p_tasks jsonb)
RETURNS TABLE (task_id bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO cb_tasks AS task
        (name, queue, description, handler, max_retries, max_lost, condition, on_fail, on_cancel, retention, options,
         input_schema, output_schema, fingerprint, registered_at)
    SELECT given.name, given.queue, given.description, given.handler, given.max_retries, given.max_lost, given.condition,
           given.on_fail, given.on_cancel, given.retention, given.options, given.input_schema, given.output_schema,
           given.fingerprint, _cb_now()
    FROM jsonb_populate_recordset(NULL::cb_tasks, p_tasks) AS given
    WHERE NOT EXISTS (
        SELECT FROM cb_tasks AS known WHERE known.name = given.name AND known.fingerprint = given.fingerprint
    )
    ORDER BY given.name
    ON CONFLICT (name) DO UPDATE
    SET queue = excluded.queue,
        description = excluded.description,
        handler = excluded.handler,
        max_retries = excluded.max_retries,
        max_lost = excluded.max_lost,
        condition = excluded.condition,
        on_fail = excluded.on_fail,
        on_cancel = excluded.on_cancel,
        retention = excluded.retention,
        options = excluded.options,
        input_schema = excluded.input_schema,
        output_schema = excluded.output_schema,
        fingerprint = excluded.fingerprint,
        registered_at = excluded.registered_at
    WHERE task.fingerprint <> excluded.fingerprint;

    -- A task that has no circuit breaker any more must not be kept back by what is left of it.
    DELETE FROM cb_breakers AS breaker
    USING jsonb_populate_recordset(NULL::cb_tasks, p_tasks) AS given, cb_tasks AS task
    WHERE task.name = given.name AND breaker.task_id = task.id AND NOT task.options ? 'breaker';

    -- A statement of its own: it must see what another process committed while the insert waited for it.
    RETURN QUERY
    SELECT task.id
    FROM jsonb_array_elements(p_tasks) WITH ORDINALITY AS given (task, place)
    JOIN cb_tasks AS task ON task.name = given.task ->> 'name'
    ORDER BY given.place;
END;
$$;

-- Queue one run of a task per input. Returns the run's id, 'queued', its queue, and whether a worker of that queue sleeps
-- (NULL: it is not due yet), for each; or 'unknown' and NULLs when no task of that name is registered. With p_run_at, or
-- p_delay from now, it is not due before; not started by p_expires_at, it is expired (`sql/tick.sql`). Keys come one per input, NULL for none. With a concurrency key there is
-- one live run per key, with an idempotency key one that is live or had its effect: where there is one already, the
-- answer is its id and 'duplicate' (`sql/dedup.sql`). With a debounce key there is one queued run per key: where there is
-- one already it takes over this input and these options, and the answer is its id and 'replaced' (`sql/debounce.sql`).
-- An input that does not fulfil the task's condition is 'skipped' at once, one for which it cannot be decided has
-- 'failed' (`sql/conditions.sql`). Joins the caller's transaction. NOTIFY is left to the caller, after the commit
-- (`cb_wake_workers`): where the call is a transaction of its own, only if a worker sleeps; at the end of a longer one in
-- any case, because the answer may be old by then. p_notify => true sends it from inside the transaction, which makes
-- notifying producers wait for each other. p_all_events => true writes an event also for what is merely queued.
CREATE OR REPLACE FUNCTION cb_run_tasks(
    p_task text,
    p_inputs jsonb[],
    p_queue text DEFAULT NULL,
    p_priority integer DEFAULT 0,
    p_headers jsonb DEFAULT NULL,
    p_run_at timestamptz DEFAULT NULL,
    p_delay interval DEFAULT NULL,
    p_concurrency_keys text[] DEFAULT NULL,
    p_idempotency_keys text[] DEFAULT NULL,
    p_debounce_keys text[] DEFAULT NULL,
    p_expires_at timestamptz DEFAULT NULL,
    p_tags text[] DEFAULT NULL,
    p_notify boolean DEFAULT false,
    p_all_events boolean DEFAULT false
)
RETURNS TABLE (run_id bigint, verdict text, queue text, is_awaited boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_task_id bigint;
    v_queue text;
    v_condition jsonb;
    v_run_at timestamptz := coalesce(p_run_at, _cb_now() + p_delay);
    v_writer xid8;
    v_is_awaited boolean;
BEGIN
    IF p_queue IS NOT NULL OR p_priority IS DISTINCT FROM 0 OR p_headers IS NOT NULL THEN
        PERFORM _cb_check_run_options(p_queue, p_priority, p_headers);
    END IF;
    IF p_run_at IS NOT NULL AND p_delay IS NOT NULL THEN
        RAISE EXCEPTION 'p_run_at and p_delay contradict each other' USING ERRCODE = 'CB001';
    END IF;
    IF pg_catalog.array_position(p_inputs, NULL) IS NOT NULL THEN
        RAISE EXCEPTION 'p_inputs holds a NULL; the input "nothing" is the JSON null' USING ERRCODE = 'CB001';
    END IF;

    SELECT task.id, coalesce(p_queue, task.queue), task.condition -> 'tree'
    INTO v_task_id, v_queue, v_condition
    FROM cb_tasks AS task
    WHERE task.name = p_task;
    IF v_task_id IS NULL THEN
        RETURN QUERY SELECT NULL::bigint, 'unknown', NULL, NULL::boolean FROM pg_catalog.unnest(p_inputs);
        RETURN;
    END IF;
    IF v_run_at > _cb_now() IS NOT TRUE THEN
        -- From here on we are known as one who writes (`cb_writers`). A worker that announces that it sleeps later than the
        -- question below waits until we have ended, and looks once more; it could not if we began to write only afterwards.
        v_writer := pg_catalog.pg_current_xact_id();
        v_is_awaited := EXISTS (
            SELECT FROM cb_workers AS worker
            WHERE worker.sleeping_since IS NOT NULL AND (worker.queues IS NULL OR worker.queues ? v_queue)
        );
    END IF;

    IF coalesce(p_concurrency_keys, p_idempotency_keys, p_debounce_keys, p_tags) IS NULL AND v_condition IS NULL
       AND NOT p_all_events THEN
        RETURN QUERY
        INSERT INTO cb_task_runs AS run (task_id, queue, priority, input, headers, run_at, visible_at, expires_at, queued_at)
        SELECT v_task_id, v_queue, p_priority, given.input, p_headers, v_run_at,
               CASE WHEN v_run_at > _cb_now() THEN v_run_at END, p_expires_at, _cb_now()
        FROM pg_catalog.unnest(p_inputs) WITH ORDINALITY AS given (input, place)
        ORDER BY given.place
        RETURNING run.id, 'queued', run.queue, v_is_awaited;
    ELSE
        RETURN QUERY
        SELECT special.run_id, special.verdict, special.queue, v_is_awaited
        FROM _cb_run_special_tasks(
            v_task_id, p_inputs, v_queue, p_priority, p_headers, v_run_at, p_expires_at, v_condition,
            p_concurrency_keys, p_idempotency_keys, p_debounce_keys, p_tags, NULL, '', p_notify, p_all_events
        ) AS special;
    END IF;

    IF p_notify THEN
        IF v_run_at > _cb_now() THEN
            PERFORM cb_wake_tick();
        ELSE
            PERFORM _cb_notify_sleepers(ARRAY[v_queue]);
        END IF;
    END IF;
END;
$$;
REVOKE ALL ON FUNCTION cb_run_tasks(
    text, jsonb[], text, integer, jsonb, timestamptz, interval, text[], text[], text[], timestamptz, text[],
    boolean, boolean
) FROM PUBLIC;

-- Queue one run of a task as cb_run_tasks does without options, and answer the same, for half of what it costs PostgreSQL to
-- read and plan the call: behind a pooler that shares connections nothing can be prepared.
CREATE OR REPLACE FUNCTION cb_run_task(
    p_task text,
    p_input jsonb,
    OUT run_id bigint,
    OUT verdict text,
    OUT queue text,
    OUT is_awaited boolean
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_task_id bigint;
    v_queue text;
    v_writer xid8;
BEGIN
    SELECT task.id, task.queue
    INTO v_task_id, v_queue
    FROM cb_tasks AS task
    WHERE task.name = p_task AND task.condition IS NULL AND p_input IS NOT NULL;
    IF v_task_id IS NULL THEN
        SELECT run.run_id, run.verdict, run.queue, run.is_awaited
        INTO run_id, verdict, queue, is_awaited
        FROM cb_run_tasks(p_task, ARRAY[p_input]) AS run;
        RETURN;
    END IF;

    v_writer := pg_catalog.pg_current_xact_id();  -- before the question, as in cb_run_tasks
    is_awaited := EXISTS (
        SELECT FROM cb_workers AS worker
        WHERE worker.sleeping_since IS NOT NULL AND (worker.queues IS NULL OR worker.queues ? v_queue)
    );
    INSERT INTO cb_task_runs AS run (task_id, queue, input, queued_at)
    VALUES (v_task_id, v_queue, p_input, _cb_now())
    RETURNING run.id INTO run_id;
    verdict := 'queued';
    queue := v_queue;
END;
$$;
REVOKE ALL ON FUNCTION cb_run_task(text, jsonb) FROM PUBLIC;

-- Refuse options of a run that no client of ours sends, so that other languages get a clear error too.
CREATE OR REPLACE FUNCTION _cb_check_run_options(p_queue text, p_priority integer, p_headers jsonb)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF p_queue !~ '^[a-z][a-z0-9_]{0,63}$' THEN
        RAISE EXCEPTION 'p_queue is not a name: %', left(p_queue, 80) USING ERRCODE = 'CB001';
    END IF;
    IF p_priority IS NULL OR p_priority NOT BETWEEN -100 AND 100 THEN
        RAISE EXCEPTION 'p_priority is %, not between -100 and 100', coalesce(p_priority::text, 'NULL')
            USING ERRCODE = 'CB001';
    END IF;
    IF jsonb_typeof(p_headers) <> 'object' THEN
        RAISE EXCEPTION 'p_headers is not a JSON object' USING ERRCODE = 'CB001';
    END IF;
END;
$$;

-- The lanes that have due runs: each (queue, task, priority) once, with its oldest run and how many seconds ago that was
-- queued, found by skipping from one to the next in the claim index. Only lanes of these tasks, and of these queues unless
-- p_queues is NULL. Runs that are suspect, which only cb_claim_suspect_tasks gives out, have lanes of their own. breaker is
-- 'open' or 'half_open' when the task's circuit breaker is; rests_for, for how many seconds it keeps everything back, as far
-- as we know (NULL: it does not).
CREATE OR REPLACE FUNCTION cb_find_task_lanes(p_task_ids bigint[], p_queues text[] DEFAULT NULL)
RETURNS TABLE (
    queue text,
    task_id bigint,
    priority integer,
    head_id bigint,
    head_age double precision,
    is_suspect boolean,
    breaker text,
    rests_for double precision
)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN QUERY
    WITH RECURSIVE lane AS (
        (
            SELECT run.queue, run.task_id, run.priority, run.id, run.queued_at
            FROM cb_task_runs AS run
            WHERE run.status = 'queued' AND run.visible_at IS NULL AND run.lost_count < 2
            ORDER BY run.queue, run.task_id, run.priority, run.id
            LIMIT 1
        )
        UNION ALL
        SELECT following.queue, following.task_id, following.priority, following.id, following.queued_at
        FROM lane
        CROSS JOIN LATERAL (
            SELECT run.queue, run.task_id, run.priority, run.id, run.queued_at
            FROM cb_task_runs AS run
            WHERE (run.queue, run.task_id, run.priority) > (lane.queue, lane.task_id, lane.priority)
              AND run.status = 'queued' AND run.visible_at IS NULL AND run.lost_count < 2
            ORDER BY run.queue, run.task_id, run.priority, run.id
            LIMIT 1
        ) AS following
    ), suspect AS (
        (
            SELECT run.queue, run.task_id, run.priority, run.id, run.queued_at
            FROM cb_task_runs AS run
            WHERE run.status = 'queued' AND run.visible_at IS NULL AND run.lost_count >= 2
            ORDER BY run.queue, run.task_id, run.priority, run.id
            LIMIT 1
        )
        UNION ALL
        SELECT following.queue, following.task_id, following.priority, following.id, following.queued_at
        FROM suspect
        CROSS JOIN LATERAL (
            SELECT run.queue, run.task_id, run.priority, run.id, run.queued_at
            FROM cb_task_runs AS run
            WHERE (run.queue, run.task_id, run.priority) > (suspect.queue, suspect.task_id, suspect.priority)
              AND run.status = 'queued' AND run.visible_at IS NULL AND run.lost_count >= 2
            ORDER BY run.queue, run.task_id, run.priority, run.id
            LIMIT 1
        ) AS following
    ), found AS (
        SELECT lane.*, false AS is_suspect FROM lane
        UNION ALL
        SELECT suspect.*, true FROM suspect
    )
    SELECT found.queue, found.task_id, found.priority::integer, found.id,
           extract(epoch FROM _cb_now() - found.queued_at)::double precision, found.is_suspect,
           CASE WHEN rest.open_until > _cb_now() THEN 'open' WHEN rest.open_until <= _cb_now() THEN 'half_open' END,
           CASE
               WHEN rest.open_until > _cb_now() THEN extract(epoch FROM rest.open_until - _cb_now())
               -- At least a moment: whoever takes back a lost trial must have time for it.
               WHEN trial.until IS NOT NULL THEN greatest(extract(epoch FROM trial.until - _cb_now()), 1)
           END::double precision
    FROM found
    LEFT JOIN cb_breakers AS rest ON rest.task_id = found.task_id AND rest.open_until IS NOT NULL
    LEFT JOIN LATERAL _cb_trial_until(rest.trial_run_id, rest.trial_token) AS trial (until) ON rest.id IS NOT NULL
    WHERE found.task_id = ANY (p_task_ids) AND (p_queues IS NULL OR found.queue = ANY (p_queues));
END;
$$;

-- Claim due runs for a worker, at most p_limits of each lane (queue, task, priority), oldest first, beginning at the
-- lane's low-water mark p_low_ids (0: at its head). One delivery token for the whole call. Never waits for a lock. Runs
-- that have lost their worker twice are left out: they are claimed alone (T7a). So are those of tasks whose circuit breaker
-- is open, but for one trial (`sql/breakers.sql`).
--
-- The comparisons are of rows because `=` on three columns with ORDER BY id lets the planner walk the primary key and
-- filter; this way only the claim index gives the order. The settings pin that plan, on an empty table too, and have it
-- made once per session instead of once per call.
CREATE OR REPLACE FUNCTION cb_claim_tasks(
    p_worker_id bigint,
    p_lease interval,
    p_queues text[],
    p_task_ids bigint[],
    p_priorities integer[],
    p_low_ids bigint[],
    p_limits integer[],
    p_all_events boolean DEFAULT false
)
RETURNS TABLE (
    run_id bigint,
    delivery_token uuid,
    queue text,
    task_id bigint,
    priority integer,
    input jsonb,
    headers jsonb,
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
    v_is_limited boolean := EXISTS (SELECT FROM cb_breakers WHERE open_until IS NOT NULL);
    v_limits integer[] := CASE WHEN v_is_limited THEN _cb_limit_to_breakers(p_task_ids, p_limits) ELSE p_limits END;
BEGIN
    RETURN QUERY
    UPDATE cb_task_runs AS run
    SET status = 'started',
        delivery_token = v_token,
        lease_until = _cb_now() + p_lease,
        worker_id = p_worker_id,
        delivery_count = run.delivery_count + 1,
        debounce_key = NULL,
        started_at = coalesce(run.started_at, _cb_now())
    WHERE run.id = ANY (ARRAY(
        SELECT head.id
        FROM unnest(p_queues, p_task_ids, p_priorities, p_low_ids, v_limits)
            AS lane (queue, task_id, priority, low_id, slots)
        CROSS JOIN LATERAL (
            SELECT due.id
            FROM cb_task_runs AS due
            WHERE (due.queue, due.task_id, due.priority, due.id)
                    >= (lane.queue, lane.task_id, lane.priority, lane.low_id)
              AND (due.queue, due.task_id, due.priority) <= (lane.queue, lane.task_id, lane.priority)
              AND due.status = 'queued' AND due.visible_at IS NULL AND due.lost_count < 2
              AND (due.expires_at IS NULL OR due.expires_at > _cb_now())
            ORDER BY due.queue, due.task_id, due.priority, due.id
            LIMIT lane.slots
            FOR UPDATE SKIP LOCKED
        ) AS head
    ))
    RETURNING run.id, run.delivery_token, run.queue, run.task_id, run.priority::integer, run.input, run.headers,
              run.delivery_count, run.failure_count, run.lost_count;

    IF v_is_limited THEN
        PERFORM _cb_begin_trials(p_task_ids, v_token);
    END IF;
    IF p_all_events THEN
        PERFORM _cb_note_claims(v_token);
    END IF;
END;
$$;

-- Claim one due run that has lost its worker at least twice, the highest, then oldest, of these tasks and queues (NULL:
-- all): it may be what kills its workers, so nothing is claimed with it (T7a). Answers as cb_claim_tasks. Never waits.
CREATE OR REPLACE FUNCTION cb_claim_suspect_tasks(
    p_worker_id bigint,
    p_lease interval,
    p_task_ids bigint[],
    p_queues text[] DEFAULT NULL,
    p_all_events boolean DEFAULT false
)
RETURNS TABLE (
    run_id bigint,
    delivery_token uuid,
    queue text,
    task_id bigint,
    priority integer,
    input jsonb,
    headers jsonb,
    delivery_count integer,
    failure_count integer,
    lost_count integer
)
LANGUAGE plpgsql ROWS 1 SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_token uuid := gen_random_uuid();
    v_is_limited boolean := EXISTS (SELECT FROM cb_breakers WHERE open_until IS NOT NULL);
    v_task_ids bigint[] := p_task_ids;
BEGIN
    IF v_is_limited THEN
        v_task_ids := ARRAY(
            SELECT given.task_id
            FROM unnest(p_task_ids, _cb_limit_to_breakers(p_task_ids, array_fill(1, ARRAY[cardinality(p_task_ids)])))
                AS given (task_id, slots)
            WHERE given.slots > 0
        );
    END IF;

    RETURN QUERY
    UPDATE cb_task_runs AS run
    SET status = 'started',
        delivery_token = v_token,
        lease_until = _cb_now() + p_lease,
        worker_id = p_worker_id,
        delivery_count = run.delivery_count + 1,
        debounce_key = NULL,
        started_at = coalesce(run.started_at, _cb_now())
    WHERE run.id = (
        SELECT suspect.id
        FROM cb_task_runs AS suspect
        WHERE suspect.status = 'queued' AND suspect.visible_at IS NULL AND suspect.lost_count >= 2
          AND (suspect.expires_at IS NULL OR suspect.expires_at > _cb_now())
          AND suspect.task_id = ANY (v_task_ids) AND (p_queues IS NULL OR suspect.queue = ANY (p_queues))
        ORDER BY suspect.priority DESC, suspect.id
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    )
    RETURNING run.id, run.delivery_token, run.queue, run.task_id, run.priority::integer, run.input, run.headers,
              run.delivery_count, run.failure_count, run.lost_count;

    IF v_is_limited THEN
        PERFORM _cb_begin_trials(v_task_ids, v_token);
    END IF;
    IF p_all_events THEN
        PERFORM _cb_note_claims(v_token);
    END IF;
END;
$$;

-- Write the events of a claim call, found by its token among what is held.
CREATE OR REPLACE FUNCTION _cb_note_claims(p_delivery_token uuid)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off AS $$
DECLARE
    v_claimed bigint[] := ARRAY(
        SELECT run.id FROM cb_task_runs AS run WHERE run.lease_until IS NOT NULL AND run.delivery_token = p_delivery_token
    );
BEGIN
    PERFORM _cb_note_task_events(
        'claimed', v_claimed, 'queued', 'started', 'worker', array_fill(p_delivery_token, ARRAY[cardinality(v_claimed)])
    );
END;
$$;

-- Complete claimed runs with their outputs: 'completed', 'canceled' (it was being canceled), 'locked' (it is being canceled,
-- and others have it just now: try again) or 'stale' for each. p_notify tells waiting callers and open pages, once for the
-- whole batch. With p_brief there is no answer at all when each of them was completed, which is nearly always. Locks: the
-- runs, in the order given (send them sorted by id); for what is being canceled nobody waits.
CREATE OR REPLACE FUNCTION cb_complete_tasks(
    p_run_ids bigint[],
    p_delivery_tokens uuid[],
    p_outputs jsonb[],
    p_notify boolean DEFAULT false,
    p_all_events boolean DEFAULT false,
    p_brief boolean DEFAULT false
)
RETURNS TABLE (run_id bigint, verdict text)
LANGUAGE plpgsql ROWS 200 SET search_path FROM CURRENT SET lock_timeout = '250ms'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_places bigint[];     -- of the claims that were ours: the same run may be reported under two tokens
    v_woken text[];        -- queues that have work again
BEGIN
    WITH completed AS (
        UPDATE cb_task_runs AS run
        SET status = 'completed', output = claim.output, error = NULL, lease_until = NULL, finished_at = _cb_now()
        FROM unnest(p_run_ids, p_delivery_tokens, p_outputs)
            WITH ORDINALITY AS claim (id, delivery_token, output, place)
        WHERE run.id = claim.id AND run.delivery_token = claim.delivery_token AND run.status = 'started'
        RETURNING claim.place
    )
    SELECT array_agg(place) INTO v_places FROM completed;

    IF p_all_events THEN
        PERFORM _cb_note_task_events(
            'completed', ARRAY(SELECT p_run_ids[place] FROM unnest(v_places) AS place), 'started', 'completed', 'worker',
            ARRAY(SELECT p_delivery_tokens[place] FROM unnest(v_places) AS place)
        );
    END IF;
    IF cardinality(v_places) IS DISTINCT FROM cardinality(p_run_ids) THEN
        v_places := v_places || _cb_complete_canceling_tasks(p_run_ids, p_delivery_tokens, p_outputs);
    END IF;
    IF EXISTS (SELECT FROM cb_breakers WHERE failure_count > 0) THEN
        v_woken := _cb_count_successes(
            ARRAY(SELECT p_run_ids[place] FROM unnest(v_places) AS place),
            ARRAY(SELECT p_delivery_tokens[place] FROM unnest(v_places) AS place)
        );
        IF p_notify AND v_woken <> '{}' THEN
            PERFORM _cb_notify_sleepers(v_woken);
        END IF;
    END IF;
    IF p_notify AND v_places IS NOT NULL THEN
        PERFORM _cb_tell_finished_tasks(p_run_ids);
    END IF;
    IF p_brief AND cardinality(v_places) = cardinality(p_run_ids) THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT * FROM _cb_verdicts(p_run_ids, p_delivery_tokens, v_places, 'completed');
END;
$$;

-- Report failed attempts, with what went wrong. A run whose delay is given and whose task allows another retry is queued
-- again after it; any other has failed for good, and its on_fail task is run. 'retrying', 'failed', 'canceled', 'locked'
-- or 'stale' for each. Locks: as cb_complete_tasks.
CREATE OR REPLACE FUNCTION cb_fail_tasks(
    p_run_ids bigint[],
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
    v_canceled bigint[];
    v_locked bigint[];
    v_failed bigint[];
    v_counted bigint[];    -- places of those whose task has a circuit breaker
    v_on_fail_queues text[] := ARRAY[]::text[];
BEGIN
    WITH held AS (
        SELECT run.id, claim.error, claim.place,
               CASE WHEN run.failure_count < task.max_retries THEN _cb_now() + claim.retry_delay END AS retry_at,
               task.options ? 'breaker' AS has_breaker
        FROM unnest(p_run_ids, p_delivery_tokens, p_errors, p_retry_delays)
            WITH ORDINALITY AS claim (id, delivery_token, error, retry_delay, place)
        JOIN cb_task_runs AS run
            ON run.id = claim.id AND run.delivery_token = claim.delivery_token AND run.status = 'started'
        LEFT JOIN cb_tasks AS task ON task.id = run.task_id
        ORDER BY run.id
        FOR NO KEY UPDATE OF run
    ), failed AS (
        UPDATE cb_task_runs AS run
        SET status = CASE WHEN held.retry_at IS NULL THEN 'failed' ELSE 'queued' END,
            visible_at = held.retry_at,
            finished_at = CASE WHEN held.retry_at IS NULL THEN _cb_now() END,
            error = held.error,
            failure_count = run.failure_count + 1,
            lease_until = NULL
        FROM held
        WHERE run.id = held.id
        RETURNING held.place, CASE WHEN held.retry_at IS NULL THEN 'failed' ELSE 'retrying' END AS verdict, held.has_breaker
    )
    SELECT array_agg(place), array_agg(failed.verdict), array_agg(p_run_ids[place]) FILTER (WHERE failed.verdict = 'failed'),
           array_agg(place) FILTER (WHERE failed.has_breaker)
    INTO v_places, v_verdicts, v_failed, v_counted
    FROM failed;

    PERFORM _cb_note_failures(v_places, v_verdicts, p_run_ids, p_delivery_tokens, p_errors, p_retry_delays);
    IF v_failed IS NOT NULL THEN
        v_on_fail_queues := _cb_run_on_fail(v_failed);
    END IF;
    IF cardinality(v_places) IS DISTINCT FROM cardinality(p_run_ids) THEN
        v_canceled := _cb_end_canceling_tasks(p_run_ids, p_delivery_tokens, false);
        v_locked := _cb_still_canceling_tasks(p_run_ids, p_delivery_tokens);
        v_places := v_places || v_canceled || v_locked;
        v_verdicts := v_verdicts || array_fill('canceled'::text, ARRAY[cardinality(v_canceled)])
            || array_fill('locked'::text, ARRAY[cardinality(v_locked)]);
    END IF;
    IF v_counted IS NOT NULL THEN
        PERFORM _cb_count_failures(
            ARRAY(SELECT p_run_ids[place] FROM unnest(v_counted) AS place),
            ARRAY(SELECT p_delivery_tokens[place] FROM unnest(v_counted) AS place)
        );
    END IF;

    IF p_notify AND 'failed' = ANY (v_verdicts) THEN
        PERFORM _cb_tell_finished_tasks(p_run_ids);
    END IF;
    IF p_notify AND 'retrying' = ANY (v_verdicts) THEN
        PERFORM cb_wake_tick();
    END IF;
    IF p_notify AND v_on_fail_queues <> '{}' THEN
        PERFORM _cb_notify_sleepers(v_on_fail_queues);
    END IF;
    RETURN QUERY SELECT * FROM _cb_different_verdicts(p_run_ids, v_places, v_verdicts);
END;
$$;

-- Write the events of failed attempts: the claims at these places, with their verdicts.
CREATE OR REPLACE FUNCTION _cb_note_failures(
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
    SELECT _cb_now(), 'task', p_run_ids[noted.place], noted.verdict, 'started',
           CASE noted.verdict WHEN 'failed' THEN 'failed' ELSE 'queued' END, 'worker', p_delivery_tokens[noted.place],
           _cb_error_in_short(p_errors[noted.place])
               || CASE noted.verdict
                      WHEN 'failed' THEN '{}'
                      ELSE jsonb_build_object('retry_in', extract(epoch FROM p_retry_delays[noted.place]))
                  END
    FROM unnest(p_places, p_verdicts) AS noted (place, verdict)
    ORDER BY noted.place
$$;

-- Give claimed runs back, unfinished: they are queued again, at once or after their delay, and neither a failure nor a
-- loss is counted. 'released', 'canceled', 'locked' or 'stale' for each. Locks: as cb_complete_tasks.
CREATE OR REPLACE FUNCTION cb_release_tasks(
    p_run_ids bigint[],
    p_delivery_tokens uuid[],
    p_delays interval[],
    p_notify boolean DEFAULT false
)
RETURNS TABLE (run_id bigint, verdict text)
LANGUAGE plpgsql ROWS 200 SET search_path FROM CURRENT SET lock_timeout = '250ms'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_places bigint[];
    v_queues text[];
BEGIN
    WITH released AS (
        UPDATE cb_task_runs AS run
        SET status = 'queued',
            visible_at = _cb_now() + claim.delay,
            delivery_token = NULL,
            lease_until = NULL,
            worker_id = NULL
        FROM unnest(p_run_ids, p_delivery_tokens, p_delays) WITH ORDINALITY AS claim (id, delivery_token, delay, place)
        WHERE run.id = claim.id AND run.delivery_token = claim.delivery_token AND run.status = 'started'
        RETURNING claim.place, run.queue, run.visible_at
    )
    SELECT array_agg(place), array_agg(DISTINCT queue) FILTER (WHERE visible_at IS NULL)
    INTO v_places, v_queues
    FROM released;

    PERFORM _cb_note_task_events(
        'released', ARRAY(SELECT p_run_ids[place] FROM unnest(v_places) AS place), 'started', 'queued', 'worker',
        ARRAY(SELECT p_delivery_tokens[place] FROM unnest(v_places) AS place),
        ARRAY(SELECT jsonb_build_object('delay', extract(epoch FROM p_delays[place])) FROM unnest(v_places) AS place)
    );

    IF p_notify AND v_queues IS NOT NULL THEN
        PERFORM _cb_notify_sleepers(v_queues);
    END IF;
    IF p_notify AND v_places IS NOT NULL THEN
        PERFORM cb_wake_tick();
    END IF;
    RETURN QUERY SELECT * FROM _cb_verdicts(p_run_ids, p_delivery_tokens, v_places, 'released');
END;
$$;

-- Renew the leases of claimed runs: 'extended', 'canceling' (its handler should stop), 'locked' (somebody has its row just
-- now, and its lease stays as it is), or 'stale' for each. An expired lease that nobody has taken back is still good: the
-- token alone decides (R5). Waits for no lock: a caller that cancels one run in a long transaction must not cost its worker
-- the leases of all the others.
CREATE OR REPLACE FUNCTION cb_extend_tasks(p_run_ids bigint[], p_delivery_tokens uuid[], p_lease interval)
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
        FROM unnest(p_run_ids, p_delivery_tokens) WITH ORDINALITY AS claim (id, delivery_token, place)
        JOIN cb_task_runs AS run ON run.id = claim.id AND run.delivery_token = claim.delivery_token
        WHERE run.status IN ('started', 'canceling')
        FOR NO KEY UPDATE OF run SKIP LOCKED
    ), extended AS (
        UPDATE cb_task_runs AS run
        SET lease_until = _cb_now() + p_lease
        FROM held
        WHERE run.id = held.id
        RETURNING held.place,
                  CASE
                      WHEN run.status = 'started' THEN 'extended'
                      WHEN _cb_may_finish(run.task_id) THEN 'extended'
                      ELSE 'canceling'
                  END AS verdict
    )
    SELECT array_agg(place), array_agg(extended.verdict) INTO v_places, v_verdicts FROM extended;

    IF cardinality(v_places) IS DISTINCT FROM cardinality(p_run_ids) THEN
        -- A statement of its own: what was settled meanwhile is not locked, but stale.
        v_locked := ARRAY(
            SELECT claim.place
            FROM unnest(p_run_ids, p_delivery_tokens) WITH ORDINALITY AS claim (id, delivery_token, place)
            JOIN cb_task_runs AS run ON run.id = claim.id AND run.delivery_token = claim.delivery_token
            WHERE run.status IN ('started', 'canceling')
              AND run.id <> ALL (ARRAY(SELECT p_run_ids[extended.place] FROM unnest(v_places) AS extended (place)))
        );
        v_places := v_places || v_locked;
        v_verdicts := v_verdicts || array_fill('locked'::text, ARRAY[cardinality(v_locked)]);
    END IF;
    RETURN QUERY SELECT * FROM _cb_different_verdicts(p_run_ids, v_places, v_verdicts);
END;
$$;

-- Which of these runs others have locked just now, so that settling them would have to wait. Waits for nobody.
CREATE OR REPLACE FUNCTION cb_find_locked_tasks(p_run_ids bigint[])
RETURNS TABLE (run_id bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '250ms'
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_free bigint[] := ARRAY(
        SELECT run.id FROM cb_task_runs AS run WHERE run.id = ANY (p_run_ids) FOR NO KEY UPDATE SKIP LOCKED
    );
BEGIN
    RETURN QUERY
    SELECT run.id FROM cb_task_runs AS run WHERE run.id = ANY (p_run_ids) AND run.id <> ALL (v_free) ORDER BY run.id;
END;
$$;

-- One verdict per claim, in the order given: p_accepted where its place is among p_places; 'canceled' where the run was
-- being canceled and now has been, whatever was reported of it; 'locked' where it is, and others have it just now; else
-- 'stale'.
CREATE OR REPLACE FUNCTION _cb_verdicts(
    p_run_ids bigint[],
    p_delivery_tokens uuid[],
    p_places bigint[],
    p_accepted text
)
RETURNS TABLE (run_id bigint, verdict text)
LANGUAGE plpgsql ROWS 200 SET search_path FROM CURRENT AS $$
DECLARE
    v_canceled bigint[];
    v_locked bigint[];
BEGIN
    -- Nearly always all are ours; only otherwise is each place looked up.
    IF cardinality(p_places) = cardinality(p_run_ids) THEN
        RETURN QUERY SELECT claim.id, p_accepted FROM unnest(p_run_ids) AS claim (id);
        RETURN;
    END IF;

    v_canceled := _cb_end_canceling_tasks(p_run_ids, p_delivery_tokens, p_accepted = 'completed');
    v_locked := _cb_still_canceling_tasks(p_run_ids, p_delivery_tokens);
    RETURN QUERY
    SELECT claim.id,
           CASE
               WHEN claim.place = ANY (p_places) THEN p_accepted
               WHEN claim.place = ANY (v_canceled) THEN 'canceled'
               WHEN claim.place = ANY (v_locked) THEN 'locked'
               ELSE 'stale'
           END
    FROM unnest(p_run_ids) WITH ORDINALITY AS claim (id, place);
END;
$$;

-- One verdict per claim, in the order given: the one at its place in p_verdicts, or 'stale' where there is none.
CREATE OR REPLACE FUNCTION _cb_different_verdicts(p_run_ids bigint[], p_places bigint[], p_verdicts text[])
RETURNS TABLE (run_id bigint, verdict text)
LANGUAGE plpgsql ROWS 200 SET search_path FROM CURRENT SET enable_hashjoin = on AS $$
BEGIN
    RETURN QUERY
    SELECT claim.id, coalesce(known.verdict, 'stale')
    FROM unnest(p_run_ids) WITH ORDINALITY AS claim (id, place)
    LEFT JOIN unnest(p_places, p_verdicts) AS known (place, verdict) USING (place)
    ORDER BY claim.place;
END;
$$;

-- Hint that these runs may have finished, if anybody watches (`sql/watching.sql`): their ids, or nothing when they do not
-- fit into a notification (R9).
CREATE OR REPLACE FUNCTION _cb_tell_finished_tasks(p_run_ids bigint[])
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_ids text;
BEGIN
    IF NOT _cb_is_watched() THEN
        RETURN;
    END IF;
    v_ids := array_to_string(p_run_ids, ',');
    PERFORM pg_notify('cb_live', CASE WHEN length(v_ids) < 7900 THEN 'task_runs ' || v_ids ELSE '' END);
END;
$$;

-- What became of these runs, as far as they exist: status, and output or error when they have ended.
CREATE OR REPLACE FUNCTION cb_read_task_runs(p_run_ids bigint[])
RETURNS TABLE (run_id bigint, status text, output jsonb, error jsonb)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY
    SELECT run.id, run.status, run.output, run.error FROM cb_task_runs AS run WHERE run.id = ANY (p_run_ids);
END;
$$;
