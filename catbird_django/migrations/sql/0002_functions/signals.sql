-- Signals: what a step waits for from outside, such as an approval (F12, F13).
--
-- The signal is one requirement of its step, like a dependency, and may come in any order with those: an early one is kept
-- and counts. With a quorum it is met by so many deliveries of different people, or by the first that decides against it.
-- Each delivery is written down with who, when, what and the verdict, the refused ones too. Who is allowed to give it is
-- for the caller to find out, except that under four eyes whoever started the run is not.
--
-- A step that waits for nothing but its signal waits until the signal's deadline: then the tick gives the payload that was
-- declared for that, or notes that it is overdue, and whoever it is escalated to may give it as well.
--
-- Locks: flow runs by id, then as `sql/readiness.sql`.

-- Give a step of a run its signal, on behalf of somebody. The answer is 'accepted', or why it does not count: 'duplicate'
-- (it was given before, or by the same person), 'late' (the step or the run has ended, or was skipped), 'unknown_run',
-- 'unknown_step', 'no_signal' (the step waits for none), 'not_allowed' (four eyes, unless p_override says that the actor
-- may all the same; or nobody is named where people count); or what the caller has found, p_refusal: 'malformed' or
-- 'not_allowed'. The same p_dedupe_id again gets the first answer, and nothing is written. Joins the caller's transaction.
CREATE OR REPLACE FUNCTION cb_signal_flow(
    p_run_id bigint,
    p_step text,
    p_payload jsonb,
    p_actor text DEFAULT '',
    p_dedupe_id text DEFAULT NULL,
    p_refusal text DEFAULT NULL,
    p_message text DEFAULT '',
    p_notify boolean DEFAULT false,
    p_override boolean DEFAULT false
)
RETURNS TABLE (verdict text, queue text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_run_status text;
    v_known text;
    v_verdict text;
    v_step_run_id bigint;
    v_is_met boolean;
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

    SELECT judged.verdict, judged.step_run_id, judged.is_met
    INTO v_verdict, v_step_run_id, v_is_met
    FROM _cb_judge_signal(
        p_run_id, v_run_status, p_step, p_payload, left(p_actor, 200), p_override, p_refusal
    ) AS judged;
    INSERT INTO cb_signals (flow_run_id, step, payload, actor, dedupe_id, verdict, message, at)
    VALUES (p_run_id, left(p_step, 200), p_payload, left(p_actor, 200), p_dedupe_id, v_verdict, left(p_message, 2000), _cb_now())
    ON CONFLICT DO NOTHING;      -- of a run that does not exist, which nobody can lock: two may say the same at once
    IF v_run_status IS NOT NULL THEN
        PERFORM _cb_note_events(
            'flow', CASE v_verdict WHEN 'accepted' THEN 'signaled' ELSE 'signal_refused' END, ARRAY[p_run_id],
            v_run_status, v_run_status, coalesce(nullif(left(p_actor, 200), ''), 'client'), NULL,
            ARRAY[
                pg_catalog.jsonb_build_object('step', left(p_step, 200), 'verdict', v_verdict)
                || CASE WHEN p_override AND v_verdict = 'accepted' THEN '{"override": true}'::jsonb ELSE '{}' END
            ]
        );
    END IF;
    IF v_is_met THEN
        v_queues := _cb_meet_signal(v_step_run_id);
    END IF;

    IF p_notify AND v_is_met THEN
        PERFORM _cb_notify_sleepers(v_queues);
        PERFORM cb_wake_tick();
    END IF;
    verdict := v_verdict;
    RETURN NEXT;
END;
$$;
REVOKE ALL ON FUNCTION cb_signal_flow(bigint, text, jsonb, text, text, text, text, boolean, boolean) FROM PUBLIC;

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

-- Whether a signal counts, for which step run, and whether what that waits for is met with it.
CREATE OR REPLACE FUNCTION _cb_judge_signal(
    p_run_id bigint,
    p_run_status text,
    p_step text,
    p_payload jsonb,
    p_actor text,
    p_override boolean,
    p_refusal text
)
RETURNS TABLE (verdict text, step_run_id bigint, is_met boolean)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    v_waited record;
    v_given integer;
    v_gave_before boolean;
BEGIN
    SELECT step_run.id, step_run.status, step_run.signaled_at, step.signal, run.started_by,
           coalesce((step.signal ->> 'four_eyes')::boolean, false) AS four_eyes,
           coalesce((step.signal ->> 'quorum')::integer, 1) AS quorum,
           coalesce(step.signal ->> 'decision', '') AS decision
    INTO v_waited
    FROM cb_flow_runs AS run
    JOIN cb_steps AS step ON step.flow_id = run.flow_id AND step.name = p_step
    JOIN cb_step_runs AS step_run ON step_run.flow_run_id = run.id AND step_run.step_id = step.id
    WHERE run.id = p_run_id;

    SELECT count(*), coalesce(bool_or(given.actor = p_actor), false)
    INTO v_given, v_gave_before
    FROM cb_signals AS given
    WHERE given.flow_run_id = p_run_id AND given.step = p_step AND given.verdict = 'accepted';

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
        WHEN (v_waited.four_eyes OR v_waited.quorum > 1) AND p_actor = '' THEN 'not_allowed'
        WHEN v_waited.four_eyes AND NOT p_override AND p_actor = v_waited.started_by THEN 'not_allowed'
        WHEN v_given > 0 AND v_gave_before THEN 'duplicate'
        ELSE 'accepted'
    END;
    is_met := verdict = 'accepted' AND (
        v_given + 1 >= v_waited.quorum
        -- Of two people who must agree, one is enough to say no.
        OR (v_waited.decision <> '' AND p_payload -> v_waited.decision = 'false'::jsonb)
    );
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

-- The payload that a step was signaled with, with a quorum a list of all that counted; NULL when it was not.
CREATE OR REPLACE FUNCTION _cb_signal_of(p_step_run_id bigint)
RETURNS jsonb
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT CASE
        WHEN (step.signal ->> 'quorum')::integer > 1 THEN jsonb_agg(given.payload ORDER BY given.id)
        ELSE jsonb_agg(given.payload ORDER BY given.id) -> 0
    END
    FROM cb_step_runs AS step_run
    JOIN cb_steps AS step ON step.id = step_run.step_id
    JOIN cb_signals AS given
        ON given.flow_run_id = step_run.flow_run_id AND given.step = step.name AND given.verdict = 'accepted'
    WHERE step_run.id = p_step_run_id AND step_run.signaled_at IS NOT NULL
    GROUP BY step.signal
$$;

-- Do what signals say of their deadline: give the payload declared for it, which meets it alone, or note that it is overdue.
-- Returns the queues of what was queued because of it, and how many steps were looked at.
CREATE OR REPLACE FUNCTION _cb_end_waits_for_signals(p_limit integer)
RETURNS TABLE (queues text[], run_count integer)
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_held bigint[];
    v_late record;
BEGIN
    queues := ARRAY[]::text[];
    run_count := 0;
    v_held := _cb_hold_flow_runs(ARRAY(
        SELECT run.flow_run_id
        FROM cb_step_runs AS run
        WHERE run.signal_due_at <= _cb_now() AND run.signal_overdue_at IS NULL AND run.status = 'waiting_for_signal'
        ORDER BY run.signal_due_at
        LIMIT p_limit
    ), ARRAY['started']);
    -- One by one: each lets its run go on in its own way, and hardly ever are there many at once.
    FOR v_late IN
        SELECT run.id, run.flow_run_id, step.name, step.signal
        FROM cb_step_runs AS run
        JOIN cb_steps AS step ON step.id = run.step_id
        WHERE run.flow_run_id = ANY (v_held) AND run.signal_due_at <= _cb_now() AND run.signal_overdue_at IS NULL
          AND run.status = 'waiting_for_signal'
        ORDER BY run.id
    LOOP
        run_count := run_count + 1;
        IF NOT v_late.signal ? 'on_deadline' THEN
            UPDATE cb_step_runs SET signal_overdue_at = _cb_now() WHERE id = v_late.id;
            PERFORM _cb_note_events(
                'step', 'signal_overdue', ARRAY[v_late.id], 'waiting_for_signal', 'waiting_for_signal', 'tick', NULL,
                ARRAY[jsonb_build_object('escalate_to', v_late.signal ->> 'escalate_to')]
            );
            CONTINUE;
        END IF;
        INSERT INTO cb_signals (flow_run_id, step, payload, actor, verdict, message, at)
        VALUES (v_late.flow_run_id, v_late.name, v_late.signal -> 'on_deadline', '', 'accepted', 'at its deadline', _cb_now());
        PERFORM _cb_note_events(
            'flow', 'signaled', ARRAY[v_late.flow_run_id], 'started', 'started', 'tick', NULL,
            ARRAY[jsonb_build_object('step', v_late.name, 'verdict', 'accepted', 'at_deadline', true)]
        );
        queues := queues || _cb_meet_signal(v_late.id);
    END LOOP;
    RETURN NEXT;
END;
$$;

-- Tell whoever does the upkeep of the deadlines of signals that these steps have begun to wait for.
CREATE OR REPLACE FUNCTION _cb_wake_tick_for_signals(p_step_run_ids bigint[])
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT FROM cb_step_runs AS run WHERE run.id = ANY (p_step_run_ids) AND run.signal_due_at IS NOT NULL) THEN
        PERFORM cb_wake_tick();
    END IF;
END;
$$;
