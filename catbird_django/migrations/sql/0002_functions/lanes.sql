-- Lanes of every kind: what a worker that runs both tasks and steps looks for, in one call.
--
-- Locks: none.

-- The lanes of these tasks and these steps that have due runs, as cb_find_task_lanes and cb_find_step_lanes find them.
-- handler_id is the id of a task, or that of a step negated; ids of runs of the two kinds do not compare, ages do.
CREATE OR REPLACE FUNCTION cb_find_lanes(p_task_ids bigint[], p_step_ids bigint[], p_queues text[] DEFAULT NULL)
RETURNS TABLE (
    queue text,
    handler_id bigint,
    priority integer,
    head_id bigint,
    head_age double precision,
    is_suspect boolean,
    breaker text,
    rests_for double precision
)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY SELECT * FROM cb_find_task_lanes(p_task_ids, p_queues);
    RETURN QUERY
    SELECT lane.queue, -lane.step_id, lane.priority, lane.head_id, lane.head_age, lane.is_suspect, NULL::text,
           NULL::double precision
    FROM cb_find_step_lanes(p_step_ids, p_queues) AS lane;
END;
$$;
