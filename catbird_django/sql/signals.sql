-- Signals: what a step waits for from outside, such as an approval (F12).
--
-- The signal is one requirement of its step, like a dependency, and may come in any order with those: an early one is kept
-- and counts. Each delivery is written down with who, when, what and the verdict, the refused ones too.
--
-- Locks: flow runs by id, then as `sql/readiness.sql`.

-- Give a step of a run its signal, on behalf of somebody. The answer is 'accepted', or why it does not count: 'duplicate'
-- (it was given before), 'late' (the step or the run has ended, or was skipped), 'unknown_run', 'unknown_step',
-- 'no_signal' (the step waits for none); or what the caller has found, p_refusal: 'malformed' or 'not_allowed'. The same
-- p_dedupe_id again gets the first answer, and nothing is written. Joins the caller's transaction.
CREATE OR REPLACE FUNCTION cb_signal_flow(
    p_run_id bigint,
    p_step text,
    p_payload jsonb,
    p_actor text DEFAULT '',
    p_dedupe_id text DEFAULT NULL,
    p_refusal text DEFAULT NULL,
    p_message text DEFAULT '',
    p_notify boolean DEFAULT false
)
RETURNS TABLE (verdict text, queue text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_run_status text;
    v_known text;
    v_verdict text;
    v_step_run_id bigint;
    v_queues text[];
BEGIN
    IF p_refusal IS NOT NULL AND p_refusal NOT IN ('malformed', 'not_allowed') THEN
        RAISE EXCEPTION 'p_refusal is %, neither malformed nor not_allowed', left(p_refusal, 80) USING ERRCODE = 'CB001';
    END IF;
    IF pg_catalog.octet_length(p_dedupe_id) NOT BETWEEN 1 AND 512 THEN
        RAISE EXCEPTION 'p_dedupe_id has 1 to 512 bytes' USING ERRCODE = 'CB001';
    END IF;

    -- Whoever else signals, completes or cancels in this run waits here.
    SELECT run.status, run.queue INTO v_run_status, queue
    FROM cb_flow_runs AS run
    WHERE run.id = p_run_id
    FOR NO KEY UPDATE;

    IF p_dedupe_id IS NOT NULL THEN
        SELECT given.verdict INTO v_known
        FROM cb_signals AS given
        WHERE given.flow_run_id = p_run_id AND given.step = left(p_step, 200) AND given.dedupe_id = p_dedupe_id;
        IF v_known IS NOT NULL THEN
            verdict := v_known;
            RETURN NEXT;
            RETURN;
        END IF;
    END IF;

    SELECT judged.verdict, judged.step_run_id
    INTO v_verdict, v_step_run_id
    FROM _cb_judge_signal(p_run_id, v_run_status, p_step, p_payload, p_refusal) AS judged;
    INSERT INTO cb_signals (flow_run_id, step, payload, actor, dedupe_id, verdict, message, at)
    VALUES (p_run_id, left(p_step, 200), p_payload, left(p_actor, 200), p_dedupe_id, v_verdict, left(p_message, 2000), _cb_now())
    ON CONFLICT DO NOTHING;      -- of a run that does not exist, which nobody can lock: two may say the same at once
    IF v_run_status IS NOT NULL THEN
        PERFORM _cb_note_events(
            'flow', CASE v_verdict WHEN 'accepted' THEN 'signaled' ELSE 'signal_refused' END, ARRAY[p_run_id],
            v_run_status, v_run_status, coalesce(nullif(left(p_actor, 200), ''), 'client'), NULL,
            ARRAY[pg_catalog.jsonb_build_object('step', left(p_step, 200), 'verdict', v_verdict)]
        );
    END IF;
    IF v_verdict = 'accepted' THEN
        v_queues := _cb_meet_signal(v_step_run_id);
    END IF;

    IF p_notify AND v_verdict = 'accepted' THEN
        PERFORM _cb_notify_sleepers(v_queues);
        PERFORM cb_wake_tick();
    END IF;
    verdict := v_verdict;
    RETURN NEXT;
END;
$$;
REVOKE ALL ON FUNCTION cb_signal_flow(bigint, text, jsonb, text, text, text, text, boolean) FROM PUBLIC;

-- Which step, of which shape, a signal would be given to: the flow's name and the step's fingerprint, by which the caller
-- finds the type to check the payload against. No row when the run has no such step, or it waits for no signal.
CREATE OR REPLACE FUNCTION cb_find_signal(p_run_id bigint, p_step text)
RETURNS TABLE (flow text, fingerprint text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY
    SELECT run.flow_name, step.fingerprint
    FROM cb_flow_runs AS run
    JOIN cb_steps AS step ON step.flow_id = run.flow_id AND step.name = p_step
    WHERE run.id = p_run_id AND step.signal IS NOT NULL;
END;
$$;
REVOKE ALL ON FUNCTION cb_find_signal(bigint, text) FROM PUBLIC;

-- Whether a signal counts, and for which step run.
CREATE OR REPLACE FUNCTION _cb_judge_signal(
    p_run_id bigint,
    p_run_status text,
    p_step text,
    p_payload jsonb,
    p_refusal text
)
RETURNS TABLE (verdict text, step_run_id bigint)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    v_waited record;
BEGIN
    SELECT step_run.id, step_run.status, step_run.signaled_at, step.signal
    INTO v_waited
    FROM cb_flow_runs AS run
    JOIN cb_steps AS step ON step.flow_id = run.flow_id AND step.name = p_step
    JOIN cb_step_runs AS step_run ON step_run.flow_run_id = run.id AND step_run.step_id = step.id
    WHERE run.id = p_run_id;

    step_run_id := v_waited.id;
    verdict := CASE
        WHEN p_run_status IS NULL THEN 'unknown_run'
        WHEN v_waited.id IS NULL THEN 'unknown_step'
        WHEN v_waited.signal IS NULL THEN 'no_signal'
        WHEN p_refusal IS NOT NULL THEN p_refusal
        WHEN p_payload IS NULL THEN 'malformed'
        WHEN v_waited.signaled_at IS NOT NULL THEN 'duplicate'
        WHEN p_run_status <> 'started' THEN 'late'
        WHEN v_waited.status NOT IN ('waiting_for_dependencies', 'waiting_for_signal') THEN 'late'
        ELSE 'accepted'
    END;
    RETURN NEXT;
END;
$$;

-- Count the signal of a step, which was accepted, and let its run go on. Returns the queues of what was queued.
CREATE OR REPLACE FUNCTION _cb_meet_signal(p_step_run_id bigint)
RETURNS text[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE cb_step_runs SET signaled_at = _cb_now() WHERE id = p_step_run_id;
    UPDATE cb_step_readiness AS readiness
    SET completed_count = readiness.completed_count + 1
    FROM cb_step_runs AS run
    WHERE run.id = p_step_run_id AND readiness.flow_run_id = run.flow_run_id AND readiness.step_id = run.step_id;
    RETURN _cb_advance_flows(ARRAY[]::bigint[], ARRAY[p_step_run_id]);
END;
$$;

-- The payload that a step was signaled with; NULL when it was not.
CREATE OR REPLACE FUNCTION _cb_signal_of(p_step_run_id bigint)
RETURNS jsonb
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT given.payload
    FROM cb_step_runs AS step_run
    JOIN cb_steps AS step ON step.id = step_run.step_id
    JOIN cb_signals AS given
        ON given.flow_run_id = step_run.flow_run_id AND given.step = step.name AND given.verdict = 'accepted'
    WHERE step_run.id = p_step_run_id AND step_run.signaled_at IS NOT NULL
    ORDER BY given.id
    LIMIT 1
$$;
