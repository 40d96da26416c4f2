-- Circuit breakers: a task that has failed several times in a row rests for a while, on all workers (T9).
--
-- A task has one when its options say so: [failures in a row, seconds of rest]. Its row in cb_breakers is there once it
-- has seen a failure. The breaker is
--   closed      open_until is NULL. Failures are counted; a success sets the count back to nothing.
--   open        open_until is to come. Nothing of the task is claimed, so waiting uses no attempt.
--   half open   open_until is past. One run is claimed, the trial, and the row names its delivery. When it completes the
--               breaker closes; when it fails the task rests once more; when it ends in any other way (its worker is
--               lost, it is released or canceled) another run is tried.
-- What was claimed before the breaker opened may end afterwards: its failures are counted, and it decides nothing.
--
-- Locks: breakers by task, after the runs. A claim skips those that are locked, and waits for nobody.

-- Until when the trial of a breaker holds its run; NULL when there is no trial under way.
CREATE OR REPLACE FUNCTION _cb_trial_until(p_run_id bigint, p_delivery_token uuid)
RETURNS timestamptz
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT run.lease_until
    FROM cb_task_runs AS run
    WHERE run.id = p_run_id AND run.delivery_token = p_delivery_token AND run.status IN ('started', 'canceling')
$$;

-- What breakers leave of the limits of a claim, given for each lane with its task: nothing of a task that rests, and one
-- run of a task whose trial is due. Locks the breakers of the latter: one that is locked has its trial taken by another.
CREATE OR REPLACE FUNCTION _cb_limit_to_breakers(p_task_ids bigint[], p_limits integer[])
RETURNS integer[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_due bigint[] := ARRAY(
        SELECT breaker.task_id
        FROM cb_breakers AS breaker
        WHERE breaker.task_id = ANY (p_task_ids) AND breaker.open_until <= _cb_now()
        ORDER BY breaker.task_id
        FOR UPDATE SKIP LOCKED
    );
BEGIN
    -- A statement of its own, after the locks: it must see the run of a trial that began while we got there.
    RETURN ARRAY(
        SELECT CASE
                   WHEN breaker.id IS NULL THEN lane.slots
                   WHEN lane.is_first AND breaker.task_id = ANY (v_due)
                        AND _cb_trial_until(breaker.trial_run_id, breaker.trial_token) IS NULL THEN least(lane.slots, 1)
                   ELSE 0
               END
        FROM (
            SELECT given.*, row_number() OVER (PARTITION BY given.task_id ORDER BY given.place) = 1 AS is_first
            FROM unnest(p_task_ids, p_limits) WITH ORDINALITY AS given (task_id, slots, place)
        ) AS lane
        LEFT JOIN cb_breakers AS breaker ON breaker.task_id = lane.task_id AND breaker.open_until IS NOT NULL
        ORDER BY lane.place
    );
END;
$$;

-- Write down which runs of a claim call, known by its token, are trials. The call holds the locks of their breakers.
CREATE OR REPLACE FUNCTION _cb_begin_trials(p_task_ids bigint[], p_delivery_token uuid)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off AS $$
BEGIN
    IF EXISTS (SELECT FROM cb_breakers WHERE task_id = ANY (p_task_ids) AND open_until <= _cb_now()) THEN
        UPDATE cb_breakers AS breaker
        SET trial_run_id = run.id, trial_token = run.delivery_token
        FROM cb_task_runs AS run
        WHERE run.lease_until IS NOT NULL AND run.delivery_token = p_delivery_token
          AND breaker.task_id = run.task_id AND breaker.open_until <= _cb_now();
    END IF;
END;
$$;

-- Count failed deliveries, which may open the breakers of their tasks. Locks: breakers by task.
CREATE OR REPLACE FUNCTION _cb_count_failures(p_run_ids bigint[], p_delivery_tokens uuid[])
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_opened bigint[];
    v_details jsonb[];
BEGIN
    PERFORM _cb_lock_breakers(p_run_ids);

    WITH failed AS (
        SELECT breaker.task_id,
               (task.options -> 'breaker' ->> 1)::double precision AS rest,
               count(*) AS failures,
               coalesce(max(run.id) FILTER (WHERE trial.is_it), max(run.id)) AS run_id,
               bool_or(trial.is_it) OR (
                   breaker.open_until IS NULL
                   AND breaker.failure_count + count(*) >= (task.options -> 'breaker' ->> 0)::integer
               ) AS opens
        FROM unnest(p_run_ids, p_delivery_tokens) AS claim (run_id, delivery_token)
        JOIN cb_task_runs AS run ON run.id = claim.run_id
        JOIN cb_tasks AS task ON task.id = run.task_id
        JOIN cb_breakers AS breaker ON breaker.task_id = run.task_id
        CROSS JOIN LATERAL (
            SELECT coalesce(
                (breaker.trial_run_id, breaker.trial_token) = (claim.run_id, claim.delivery_token), false
            ) AS is_it
        ) AS trial
        GROUP BY breaker.id, task.id
    ), counted AS (
        UPDATE cb_breakers AS breaker
        SET failure_count = breaker.failure_count + failed.failures,
            open_until = CASE WHEN failed.opens THEN _cb_now() + make_interval(secs => failed.rest) ELSE open_until END,
            trial_run_id = CASE WHEN NOT failed.opens THEN trial_run_id END,
            trial_token = CASE WHEN NOT failed.opens THEN trial_token END
        FROM failed
        WHERE breaker.task_id = failed.task_id
        RETURNING failed.run_id, failed.opens,
                  jsonb_build_object('failures', breaker.failure_count, 'rest', failed.rest) AS details
    )
    SELECT array_agg(counted.run_id), array_agg(counted.details)
    INTO v_opened, v_details
    FROM counted
    WHERE counted.opens;

    PERFORM _cb_note_task_events('breaker_opened', v_opened, '', '', 'worker', NULL, v_details);
END;
$$;

-- Lock the breakers of the tasks of these runs, as far as they have one; make those that are missing.
CREATE OR REPLACE FUNCTION _cb_lock_breakers(p_run_ids bigint[])
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_task_ids bigint[] := ARRAY(
        SELECT DISTINCT task.id
        FROM cb_task_runs AS run
        JOIN cb_tasks AS task ON task.id = run.task_id
        WHERE run.id = ANY (p_run_ids) AND task.options ? 'breaker'
    );
BEGIN
    INSERT INTO cb_breakers (task_id)
    SELECT missing.task_id
    FROM unnest(v_task_ids) AS missing (task_id)
    WHERE NOT EXISTS (SELECT FROM cb_breakers AS known WHERE known.task_id = missing.task_id)
    ORDER BY missing.task_id
    ON CONFLICT (task_id) DO NOTHING;

    PERFORM FROM cb_breakers AS breaker WHERE breaker.task_id = ANY (v_task_ids) ORDER BY breaker.task_id FOR UPDATE;
END;
$$;

-- Count completed deliveries: what their tasks failed before is forgotten, and the breaker of one that was a trial is
-- closed. Returns the queues of the latter. Locks: breakers by task.
CREATE OR REPLACE FUNCTION _cb_count_successes(p_run_ids bigint[], p_delivery_tokens uuid[])
RETURNS text[]
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_task_ids bigint[] := ARRAY(
        SELECT breaker.task_id
        FROM cb_breakers AS breaker
        WHERE breaker.failure_count > 0
          AND breaker.task_id = ANY (ARRAY(SELECT run.task_id FROM cb_task_runs AS run WHERE run.id = ANY (p_run_ids)))
        ORDER BY breaker.task_id
        FOR UPDATE
    );
    v_closed bigint[];
    v_queues text[];
BEGIN
    WITH known AS (
        SELECT breaker.id, breaker.open_until, trial.run_id
        FROM cb_breakers AS breaker
        LEFT JOIN unnest(p_run_ids, p_delivery_tokens) AS trial (run_id, delivery_token)
            ON (trial.run_id, trial.delivery_token) = (breaker.trial_run_id, breaker.trial_token)
        WHERE breaker.task_id = ANY (v_task_ids)
    ), forgotten AS (
        UPDATE cb_breakers AS breaker
        SET failure_count = 0, open_until = NULL, trial_run_id = NULL, trial_token = NULL
        FROM known
        WHERE breaker.id = known.id AND (known.open_until IS NULL OR known.run_id IS NOT NULL)
        RETURNING known.run_id
    )
    SELECT array_agg(run.id), array_agg(run.queue)
    INTO v_closed, v_queues
    FROM forgotten
    JOIN cb_task_runs AS run ON run.id = forgotten.run_id;

    PERFORM _cb_note_task_events('breaker_closed', v_closed, '', '', 'worker');
    RETURN coalesce(v_queues, ARRAY[]::text[]);
END;
$$;
