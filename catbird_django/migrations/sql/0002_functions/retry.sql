-- Retry: a run that has ended is never rewritten; a new one is made of it, which knows its origin (T13).
--
-- Locks: keys, in sort order.

-- Run these runs again, on behalf of somebody: for each that has ended a new run of the same task with the same queue,
-- priority, input, headers and tags, due at once. It keeps the concurrency key and drops the idempotency key; the task's
-- condition is decided anew. An event of the new run says who asked. Returns the id of the new run, the verdict that
-- cb_run_tasks would give ('duplicate' with the id of the live run that has the key), and its queue; or NULL and 'live'
-- for a run that has not ended, 'unknown' for none. Joins the caller's transaction; wake the workers after the commit, or with p_notify => true.
CREATE OR REPLACE FUNCTION cb_retry_tasks(
    p_run_ids bigint[],
    p_actor text DEFAULT '',
    p_notify boolean DEFAULT false,
    p_all_events boolean DEFAULT false
)
RETURNS TABLE (run_id bigint, verdict text, queue text)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_ids bigint[] := array_fill(NULL::bigint, ARRAY[cardinality(p_run_ids)]);
    v_verdicts text[] := array_fill('unknown'::text, ARRAY[cardinality(p_run_ids)]);
    v_queues text[] := array_fill(NULL::text, ARRAY[cardinality(p_run_ids)]);
    v_old record;
    v_new record;
BEGIN
    -- One by one: each is of another task and has options of its own, and nobody does this ten thousand times a second.
    FOR v_old IN
        SELECT given.place, old.*, task.condition -> 'tree' AS condition,
               ARRAY(SELECT tag.tag FROM cb_run_tags AS tag WHERE tag.run_kind = 'task' AND tag.run_id = old.id) AS tags
        FROM unnest(p_run_ids) WITH ORDINALITY AS given (id, place)
        JOIN cb_task_runs AS old ON old.id = given.id
        LEFT JOIN cb_tasks AS task ON task.id = old.task_id
        ORDER BY old.task_id, old.concurrency_key, given.place
    LOOP
        IF v_old.status IN ('queued', 'started', 'canceling') THEN
            v_verdicts[v_old.place] := 'live';
        ELSE
            SELECT new.run_id, new.verdict, new.queue
            INTO v_new
            FROM _cb_run_special_tasks(
                v_old.task_id, ARRAY[v_old.input], v_old.queue, v_old.priority, v_old.headers, NULL, NULL, v_old.condition,
                CASE WHEN v_old.concurrency_key IS NOT NULL THEN ARRAY[v_old.concurrency_key] END, NULL, NULL,
                nullif(v_old.tags, '{}'), v_old.id, 'retry', p_notify, p_all_events
            ) AS new;
            IF v_new.verdict <> 'duplicate' THEN
                PERFORM _cb_note_task_events(
                    'retried', ARRAY[v_new.run_id], '', '', p_actor, NULL, ARRAY[jsonb_build_object('origin', v_old.id)]
                );
            END IF;
            v_ids[v_old.place] := v_new.run_id;
            v_verdicts[v_old.place] := v_new.verdict;
            v_queues[v_old.place] := v_new.queue;
        END IF;
    END LOOP;

    IF p_notify THEN
        PERFORM _cb_notify_sleepers(array_remove(v_queues, NULL));
    END IF;
    RETURN QUERY SELECT * FROM unnest(v_ids, v_verdicts, v_queues);
END;
$$;
