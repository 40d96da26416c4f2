-- Retry flows: a run that has ended is never rewritten; a new one is made of it, which knows its origin (F26, T13).
--
-- Locks: keys, in sort order.

-- Run these runs again, on behalf of somebody: for each that has ended a new run of the whole flow, in its current
-- version, with the same queue, priority, input, headers and tags, due at once. It keeps the concurrency key and drops
-- the idempotency key. Returns the id of the new run, 'queued' ('duplicate' with the id of the live run that has the
-- key), and its queue; or NULL and 'live' for a run that has not ended, 'unknown' for none. Joins the caller's
-- transaction; wake the workers after the commit, or with p_notify => true.
CREATE OR REPLACE FUNCTION cb_retry_flows(p_run_ids bigint[], p_actor text DEFAULT '', p_notify boolean DEFAULT false)
RETURNS TABLE (run_id bigint, verdict text, queue text)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_ids bigint[] := array_fill(NULL::bigint, ARRAY[cardinality(p_run_ids)]);
    v_verdicts text[] := array_fill('unknown'::text, ARRAY[cardinality(p_run_ids)]);
    v_queues text[] := array_fill(NULL::text, ARRAY[cardinality(p_run_ids)]);
    v_old record;
    v_new record;
BEGIN
    -- One by one, as cb_retry_tasks does, and for its reasons.
    FOR v_old IN
        SELECT given.place, old.*, current.id AS current_id, current.deadline AS current_deadline,
               ARRAY(SELECT tag.tag FROM cb_run_tags AS tag WHERE tag.run_kind = 'flow' AND tag.run_id = old.id) AS tags
        FROM unnest(p_run_ids) WITH ORDINALITY AS given (id, place)
        JOIN cb_flow_runs AS old ON old.id = given.id
        CROSS JOIN LATERAL (
            SELECT flow.id, flow.deadline
            FROM cb_flows AS flow
            WHERE flow.name = old.flow_name
            ORDER BY flow.registered_at DESC, flow.version DESC
            LIMIT 1
        ) AS current
        ORDER BY old.flow_name, old.concurrency_key, given.place
    LOOP
        IF v_old.status IN ('started', 'canceling', 'failing', 'completing') THEN
            v_verdicts[v_old.place] := 'live';
        ELSE
            SELECT made.run_id, made.verdict
            INTO v_new
            FROM _cb_make_flow_runs(
                v_old.current_id, v_old.flow_name, ARRAY[v_old.input], v_old.queue, v_old.priority, v_old.headers, NULL,
                NULL, v_old.current_deadline, p_actor,
                CASE WHEN v_old.concurrency_key IS NOT NULL THEN ARRAY[v_old.concurrency_key] END, NULL, v_old.id, 'retry'
            ) AS made;
            IF v_new.verdict = 'started' THEN
                PERFORM _cb_begin_flow_runs(ARRAY[v_new.run_id]);
                PERFORM _cb_tag_flows(ARRAY[v_new.run_id], ARRAY['started'], v_old.tags);
            END IF;
            v_ids[v_old.place] := v_new.run_id;
            v_verdicts[v_old.place] := CASE v_new.verdict WHEN 'started' THEN 'queued' ELSE v_new.verdict END;
            v_queues[v_old.place] := v_old.queue;
        END IF;
    END LOOP;

    IF p_notify THEN
        PERFORM _cb_notify_sleepers(array_remove(v_queues, NULL));
    END IF;
    RETURN QUERY SELECT * FROM unnest(v_ids, v_verdicts, v_queues);
END;
$$;
