-- Flows: register their shapes, start runs, read what became of them.
--
-- A flow is rows: one for each version of it, that is for each shape that was ever registered, with its steps and what
-- they need. A run stays on the version it began with (F21). Starting a run makes everything it will ever have: one step
-- run and one readiness row per step, and one more readiness row, without a step, for its end (F3, F3a).
--
-- Locks: cb_flows, when a new shape is registered; then keys, in sort order.

-- Make these shapes known: a JSON array of plans, as `definitions/plan.py` makes them, each with its fingerprint. A shape
-- that is already stored is not written again; the one that was registered last is the one that is run by name. Returns
-- the id and the version of each, in the order given.
CREATE OR REPLACE FUNCTION cb_register_flows(p_flows jsonb)
RETURNS TABLE (flow_id bigint, version integer)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM _cb_register_flow(given.flow)
    FROM jsonb_array_elements(p_flows) AS given (flow)
    ORDER BY given.flow ->> 'name';

    RETURN QUERY
    SELECT flow.id, flow.version
    FROM jsonb_array_elements(p_flows) WITH ORDINALITY AS given (flow, place)
    JOIN cb_flows AS flow ON flow.name = given.flow ->> 'name' AND flow.fingerprint = given.flow ->> 'fingerprint'
    ORDER BY given.place;
END;
$$;

-- Make one shape known, and the current one of its flow.
CREATE OR REPLACE FUNCTION _cb_register_flow(p_flow jsonb)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_newest text;
    v_flow_id bigint;
BEGIN
    SELECT flow.fingerprint INTO v_newest
    FROM cb_flows AS flow
    WHERE flow.name = p_flow ->> 'name'
    ORDER BY flow.registered_at DESC, flow.version DESC
    LIMIT 1;
    IF v_newest = p_flow ->> 'fingerprint' THEN
        RETURN;
    END IF;

    -- Rare, and two processes may register at once: whoever waits finds it done.
    LOCK TABLE cb_flows IN SHARE ROW EXCLUSIVE MODE;
    UPDATE cb_flows
    SET registered_at = _cb_now()
    WHERE name = p_flow ->> 'name' AND fingerprint = p_flow ->> 'fingerprint';
    IF FOUND THEN
        RETURN;
    END IF;

    INSERT INTO cb_flows
        (name, version, fingerprint, queue, description, on_fail, deadline, retention, outputs, output_required,
         final_count, input_schema, output_schema, registered_at)
    SELECT given.name,
           1 + coalesce((SELECT max(known.version) FROM cb_flows AS known WHERE known.name = given.name), 0),
           p_flow ->> 'fingerprint', given.queue, given.description, given.on_fail,
           make_interval(secs => given.deadline), make_interval(secs => given.retention), given.outputs,
           given.output_required, given.final_count, given.input_schema, given.output_schema, _cb_now()
    FROM jsonb_to_record(p_flow) AS given (
        name text, queue text, description text, on_fail text, deadline float8, retention float8, outputs jsonb,
        output_required boolean, final_count integer, input_schema jsonb, output_schema jsonb
    )
    RETURNING id INTO v_flow_id;
    PERFORM _cb_register_steps(v_flow_id, p_flow);
END;
$$;

-- Store the steps of a new version, and what they need.
CREATE OR REPLACE FUNCTION _cb_register_steps(p_flow_id bigint, p_flow jsonb)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO cb_steps
        (flow_id, position, name, kind, description, handler, fingerprint, dependency_count, required_count,
         over, max_failed_items, is_inline, is_atomic, takes_lists, takes_input, takes_signal, condition, condition_roots,
         condition_needs_signal, signal, signal_schema, may_skip, on_unmet, on_exhausted, on_cancel, is_final,
         output_rank, max_retries, max_lost, delay, deadline, options, argument_schemas, output_schema)
    SELECT p_flow_id, given.position, given.name, given.kind, given.description, given.handler, given.fingerprint,
           given.dependency_count, given.required_count, given.over, given.max_failed_items, given.is_inline,
           given.is_atomic, given.takes_lists, given.takes_input, given.takes_signal, nullif(given.condition, 'null'),
           given.condition_roots, given.condition_needs_signal, nullif(given.signal, 'null'),
           nullif(given.signal_schema, 'null'), given.may_skip, given.on_unmet, given.on_exhausted, given.on_cancel,
           given.is_final,
           (
               SELECT output.rank
               FROM jsonb_array_elements_text(p_flow -> 'outputs') WITH ORDINALITY AS output (name, rank)
               WHERE output.name = given.name
           ),
           given.max_retries, coalesce(given.max_lost, 5), make_interval(secs => given.delay),
           make_interval(secs => given.deadline), given.options, given.argument_schemas, given.output_schema
    FROM jsonb_to_recordset(p_flow -> 'steps') AS given (
        position integer, name text, kind text, description text, handler text, fingerprint text,
        dependency_count integer, required_count integer, over text, max_failed_items integer, is_inline boolean,
        is_atomic boolean, takes_lists boolean, takes_input boolean, takes_signal boolean, condition jsonb,
        condition_roots jsonb, condition_needs_signal boolean, signal jsonb, signal_schema jsonb, may_skip boolean, on_unmet text,
        on_exhausted text, on_cancel text, is_final boolean, max_retries integer, max_lost integer, delay float8,
        deadline float8, options jsonb, argument_schemas jsonb, output_schema jsonb
    )
    ORDER BY given.position;

    INSERT INTO cb_step_dependencies (step_id, dependency_id, parameter, is_optional, is_order_only)
    SELECT step.id, dependency.id, needed.parameter, needed.is_optional, needed.is_order_only
    FROM jsonb_array_elements(p_flow -> 'steps') AS given (step)
    CROSS JOIN jsonb_to_recordset(given.step -> 'dependencies') AS needed (
        step text, parameter text, is_optional boolean, is_order_only boolean
    )
    JOIN cb_steps AS step ON step.flow_id = p_flow_id AND step.name = given.step ->> 'name'
    JOIN cb_steps AS dependency ON dependency.flow_id = p_flow_id AND dependency.name = needed.step
    ORDER BY step.position, dependency.position;
END;
$$;

-- Start one run of a flow per input: of the version with p_fingerprint, or of the current one. Returns the run's id,
-- 'started', its queue, and whether a worker of that queue sleeps (NULL: it is not due yet), for each; 'duplicate' and the id of the run that has the
-- key, where there is one (as cb_run_tasks says of keys); or 'unknown' and NULLs when no such flow is registered. With
-- p_run_at, or p_delay from now, its first steps are not due before; not ended by p_expires_at, it ends as by cancel. Joins
-- the caller's transaction. NOTIFY is as in cb_run_tasks.
CREATE OR REPLACE FUNCTION cb_run_flows(
    p_flow text,
    p_inputs jsonb[],
    p_fingerprint text DEFAULT NULL,
    p_queue text DEFAULT NULL,
    p_priority integer DEFAULT 0,
    p_headers jsonb DEFAULT NULL,
    p_run_at timestamptz DEFAULT NULL,
    p_delay interval DEFAULT NULL,
    p_concurrency_keys text[] DEFAULT NULL,
    p_idempotency_keys text[] DEFAULT NULL,
    p_expires_at timestamptz DEFAULT NULL,
    p_tags text[] DEFAULT NULL,
    p_actor text DEFAULT '',
    p_notify boolean DEFAULT false
)
RETURNS TABLE (run_id bigint, verdict text, queue text, is_awaited boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_flow cb_flows;
    v_queue text;
    v_run_at timestamptz := coalesce(p_run_at, _cb_now() + p_delay);
    v_ids bigint[];
    v_verdicts text[];
    v_is_awaited boolean;
BEGIN
    PERFORM _cb_check_run_options(p_queue, p_priority, p_headers);
    PERFORM _cb_check_keys(pg_catalog.cardinality(p_inputs), p_concurrency_keys, p_idempotency_keys, NULL);
    PERFORM _cb_check_tags(p_tags);
    IF p_run_at IS NOT NULL AND p_delay IS NOT NULL THEN
        RAISE EXCEPTION 'p_run_at and p_delay contradict each other' USING ERRCODE = 'CB001';
    END IF;
    IF pg_catalog.array_position(p_inputs, NULL) IS NOT NULL THEN
        RAISE EXCEPTION 'p_inputs holds a NULL; the input "nothing" is the JSON null' USING ERRCODE = 'CB001';
    END IF;

    SELECT flow.* INTO v_flow
    FROM cb_flows AS flow
    WHERE flow.name = p_flow AND (p_fingerprint IS NULL OR flow.fingerprint = p_fingerprint)
    ORDER BY flow.registered_at DESC, flow.version DESC
    LIMIT 1;
    IF v_flow.id IS NULL THEN
        RETURN QUERY SELECT NULL::bigint, 'unknown', NULL, NULL::boolean FROM pg_catalog.unnest(p_inputs);
        RETURN;
    END IF;
    v_queue := coalesce(p_queue, v_flow.queue);
    IF v_run_at IS NULL OR v_run_at <= _cb_now() THEN
        v_is_awaited := EXISTS (
            SELECT FROM cb_workers AS worker
            WHERE worker.sleeping_since IS NOT NULL AND (worker.queues IS NULL OR worker.queues ? v_queue)
        );
    END IF;

    SELECT pg_catalog.array_agg(made.run_id ORDER BY made.place), pg_catalog.array_agg(made.verdict ORDER BY made.place)
    INTO v_ids, v_verdicts
    FROM _cb_make_flow_runs(
        v_flow.id, p_flow, p_inputs, v_queue, p_priority, p_headers, v_run_at, p_expires_at, v_flow.deadline, p_actor,
        p_concurrency_keys, p_idempotency_keys, NULL, ''
    ) AS made;
    PERFORM _cb_begin_flow_runs(ARRAY(
        SELECT made.id
        FROM ROWS FROM (pg_catalog.unnest(v_ids), pg_catalog.unnest(v_verdicts)) AS made (id, verdict)
        WHERE made.verdict = 'started'
    ));
    IF p_tags IS NOT NULL THEN
        PERFORM _cb_tag_flows(v_ids, v_verdicts, p_tags);
    END IF;

    IF p_notify THEN
        IF v_run_at > _cb_now() OR p_expires_at IS NOT NULL OR v_flow.deadline IS NOT NULL THEN
            PERFORM cb_wake_tick();
        END IF;
        PERFORM _cb_notify_sleepers(ARRAY[v_queue]);
    END IF;
    RETURN QUERY
    SELECT made.id, made.verdict, v_queue, v_is_awaited
    FROM ROWS FROM (pg_catalog.unnest(v_ids), pg_catalog.unnest(v_verdicts)) AS made (id, verdict);
END;
$$;
REVOKE ALL ON FUNCTION cb_run_flows(
    text, jsonb[], text, text, integer, jsonb, timestamptz, interval, text[], text[], timestamptz, text[], text, boolean
) FROM PUBLIC;

-- Insert flow runs, or find the ones that have the keys: for each input its place, a run's id, and 'started' or
-- 'duplicate'. As with tasks (`sql/dedup.sql`), the keys are asked and the winners are read in separate statements.
CREATE OR REPLACE FUNCTION _cb_make_flow_runs(
    p_flow_id bigint,
    p_flow_name text,
    p_inputs jsonb[],
    p_queue text,
    p_priority integer,
    p_headers jsonb,
    p_run_at timestamptz,
    p_expires_at timestamptz,
    p_deadline interval,
    p_actor text,
    p_concurrency_keys text[],
    p_idempotency_keys text[],
    p_origin_id bigint,
    p_role text
)
RETURNS TABLE (place integer, run_id bigint, verdict text)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_count integer := pg_catalog.cardinality(p_inputs);
    v_places integer[] := ARRAY[]::integer[];      -- of the inputs that have their answer
    v_found integer[];
    v_ids bigint[];
BEGIN
    FOR v_round IN 1..5 LOOP
        v_ids := ARRAY(
            SELECT nextval(pg_get_serial_sequence('cb_flow_runs', 'id')) FROM pg_catalog.generate_series(1, v_count)
        );
        RETURN QUERY
        WITH given AS (
            SELECT nth, v_ids[nth] AS id, p_concurrency_keys[nth] AS concurrency_key,
                   p_idempotency_keys[nth] AS idempotency_key
            FROM pg_catalog.generate_series(1, v_count) AS nth
            WHERE nth <> ALL (v_places)
        ), inserted AS (
            INSERT INTO cb_flow_runs AS run
                (id, flow_id, flow_name, priority, queue, expires_at, deadline_at, origin_id, concurrency_key,
                 idempotency_key, input, headers, role, run_at, started_by, started_at)
            SELECT given.id, p_flow_id, p_flow_name, p_priority, p_queue, p_expires_at,
                   greatest(p_run_at, _cb_now()) + p_deadline, p_origin_id, given.concurrency_key,
                   given.idempotency_key, p_inputs[given.nth], p_headers, p_role, p_run_at, left(p_actor, 200), _cb_now()
            FROM given
            ORDER BY given.concurrency_key, given.idempotency_key, given.nth
            ON CONFLICT DO NOTHING
            RETURNING run.id
        )
        SELECT given.nth, given.id, 'started' FROM inserted JOIN given USING (id);
        IF p_concurrency_keys IS NULL AND p_idempotency_keys IS NULL THEN
            RETURN;
        END IF;
        v_places := v_places || ARRAY(
            SELECT nth
            FROM pg_catalog.generate_series(1, v_count) AS nth
            JOIN cb_flow_runs AS made ON made.id = v_ids[nth]
            WHERE nth <> ALL (v_places)
        );
        EXIT WHEN pg_catalog.cardinality(v_places) = v_count;

        -- A statement of its own: it sees what was committed while the insert waited.
        SELECT pg_catalog.array_agg(nth), pg_catalog.array_agg(winner.id)
        INTO v_found, v_ids
        FROM pg_catalog.generate_series(1, v_count) AS nth
        CROSS JOIN LATERAL (
            SELECT run.id
            FROM cb_flow_runs AS run
            WHERE run.flow_name = p_flow_name
              AND (
                  (run.concurrency_key = p_concurrency_keys[nth]
                   AND run.status IN ('started', 'canceling', 'failing', 'completing'))
                  OR (run.idempotency_key = p_idempotency_keys[nth]
                      AND run.status IN ('started', 'canceling', 'failing', 'completing', 'completed'))
              )
            LIMIT 1
        ) AS winner
        WHERE nth <> ALL (v_places);
        RETURN QUERY
        SELECT found.nth, found.id, 'duplicate'
        FROM ROWS FROM (pg_catalog.unnest(v_found), pg_catalog.unnest(v_ids)) AS found (nth, id);
        v_places := v_places || coalesce(v_found, ARRAY[]::integer[]);
        EXIT WHEN pg_catalog.cardinality(v_places) = v_count;
        -- The winner has ended meanwhile and freed its key: try to be the next.
    END LOOP;

    IF pg_catalog.cardinality(v_places) < v_count THEN
        RAISE EXCEPTION 'keys are taken and freed faster than they can be read' USING ERRCODE = '40001';
    END IF;
END;
$$;

-- Make the step runs and the readiness rows of new flow runs, and queue or decide the steps that need no other.
CREATE OR REPLACE FUNCTION _cb_begin_flow_runs(p_run_ids bigint[])
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_undecided bigint[];
BEGIN
    -- A step that needs nothing at all is queued right away; a first step with a condition or a signal, and a map, is
    -- decided below.
    INSERT INTO cb_step_runs
        (flow_run_id, step_id, priority, queue, status, visible_at, deadline_at, queued_at)
    SELECT run.id, step.id, run.priority, run.queue,
           CASE WHEN first.is_ready THEN 'queued' ELSE 'waiting_for_dependencies' END,
           CASE WHEN first.is_ready AND due.at > _cb_now() THEN due.at END,
           greatest(run.run_at, _cb_now()) + step.deadline,
           CASE WHEN first.is_ready THEN _cb_now() END
    FROM cb_flow_runs AS run
    JOIN cb_steps AS step ON step.flow_id = run.flow_id
    CROSS JOIN LATERAL (SELECT step.required_count = 0 AND step.condition IS NULL AND step.kind <> 'map' AS is_ready) AS first
    CROSS JOIN LATERAL (SELECT greatest(run.run_at, _cb_now()) + coalesce(step.delay, interval '0') AS at) AS due
    WHERE run.id = ANY (p_run_ids)
    ORDER BY run.id, step.position;

    INSERT INTO cb_step_readiness (flow_run_id, step_id, step_run_id, required_count)
    SELECT step_run.flow_run_id, step_run.step_id, step_run.id, step.required_count
    FROM cb_step_runs AS step_run
    JOIN cb_steps AS step ON step.id = step_run.step_id
    WHERE step_run.flow_run_id = ANY (p_run_ids)
    UNION ALL
    SELECT run.id, NULL, NULL, flow.final_count
    FROM cb_flow_runs AS run
    JOIN cb_flows AS flow ON flow.id = run.flow_id
    WHERE run.id = ANY (p_run_ids);

    v_undecided := ARRAY(
        SELECT step_run.id
        FROM cb_step_runs AS step_run
        JOIN cb_steps AS step ON step.id = step_run.step_id
        WHERE step_run.flow_run_id = ANY (p_run_ids)
          AND step.dependency_count = 0 AND step_run.status = 'waiting_for_dependencies'
        ORDER BY step_run.id
    );
    IF v_undecided <> '{}' THEN
        PERFORM _cb_advance_flows(ARRAY[]::bigint[], v_undecided);
    END IF;
END;
$$;

-- Give these flow runs their tags; a duplicate keeps what it has.
CREATE OR REPLACE FUNCTION _cb_tag_flows(p_run_ids bigint[], p_verdicts text[], p_tags text[])
RETURNS void
LANGUAGE sql SET search_path FROM CURRENT AS $$
    INSERT INTO cb_run_tags (run_kind, run_id, tag)
    SELECT DISTINCT 'flow', run.id, given.tag
    FROM ROWS FROM (pg_catalog.unnest(p_run_ids), pg_catalog.unnest(p_verdicts)) AS run (id, verdict)
    CROSS JOIN pg_catalog.unnest(p_tags) AS given (tag)
    WHERE run.verdict = 'started'
    ORDER BY run.id, given.tag
    ON CONFLICT DO NOTHING
$$;

-- What became of these runs, as far as they exist: status, and output or error when they have ended.
CREATE OR REPLACE FUNCTION cb_read_flow_runs(p_run_ids bigint[])
RETURNS TABLE (run_id bigint, status text, output jsonb, error jsonb)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY
    SELECT run.id, run.status,
           CASE WHEN run.output_run_id IS NULL THEN run.output ELSE _cb_list_of_items(run.output_run_id) END, run.error
    FROM cb_flow_runs AS run
    WHERE run.id = ANY (p_run_ids);
END;
$$;

-- How the steps of a run are: name, status, and output where there is one; in the order of the flow.
CREATE OR REPLACE FUNCTION cb_read_step_runs(p_run_id bigint)
RETURNS TABLE (step text, status text, output jsonb, error jsonb)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY
    SELECT step.name, step_run.status,
           CASE
               WHEN step_run.status = 'completed' AND step_run.items_spawned IS NOT NULL THEN _cb_list_of_items(step_run.id)
               ELSE step_run.output
           END,
           step_run.error
    FROM cb_step_runs AS step_run
    JOIN cb_steps AS step ON step.id = step_run.step_id
    WHERE step_run.flow_run_id = p_run_id
    ORDER BY step.position;
END;
$$;
