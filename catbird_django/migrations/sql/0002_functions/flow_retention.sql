-- Retention of flow runs: as `sql/retention.sql` says of tasks. A run goes with its steps, what they counted and received,
-- its signals, and everything that is written down beside it and them.
--
-- Locks: flow runs by id, then step runs by id, then items; flow runs that are locked are skipped, and found by the next pass.

-- Look at the next p_limit flow runs after p_after_id, in order of id, and remove those that ended longer ago than their
-- flow's retention, or than p_retention where it has none (NULL: those are kept for ever). Returns how many were removed,
-- and the id to go on from (NULL: the pass is over, as in cb_apply_retention).
CREATE OR REPLACE FUNCTION cb_apply_flow_retention(p_retention interval, p_after_id bigint, p_limit integer)
RETURNS TABLE (removed_count integer, last_id bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_now timestamptz := _cb_now();
    v_shortest interval := least(p_retention, (SELECT min(flow.retention) FROM cb_flows AS flow));
    v_old bigint[];
    v_seen integer;
    v_newest timestamptz;
BEGIN
    IF v_shortest IS NULL THEN
        RETURN QUERY SELECT 0, NULL::bigint;
        RETURN;
    END IF;

    SELECT array_agg(seen.id) FILTER (
               WHERE seen.finished_at <= v_now - coalesce(flow.retention, p_retention)
                 -- At least: its caller may still wait for it, and the last words of a handler be on their way.
                 AND seen.finished_at <= v_now - interval '1 minute'
           ),
           count(*), max(seen.id), max(seen.started_at)
    INTO v_old, v_seen, last_id, v_newest
    FROM (
        SELECT run.id, run.flow_id, run.started_at, run.finished_at
        FROM cb_flow_runs AS run
        WHERE run.id > p_after_id
        ORDER BY run.id
        LIMIT p_limit
    ) AS seen
    LEFT JOIN cb_flows AS flow ON flow.id = seen.flow_id;

    removed_count := _cb_remove_flows(v_old);
    IF v_seen < p_limit OR v_newest > v_now - v_shortest THEN
        last_id := NULL;
    END IF;
    RETURN NEXT;
END;
$$;

-- Remove these flow runs, with all that belongs to them, but for those that are live or locked. Returns how many.
CREATE OR REPLACE FUNCTION _cb_remove_flows(p_flow_run_ids bigint[])
RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_ids bigint[] := ARRAY(
        SELECT run.id
        FROM cb_flow_runs AS run
        WHERE run.id = ANY (p_flow_run_ids) AND run.status IN ('completed', 'failed', 'skipped', 'canceled', 'expired')
        ORDER BY run.id
        FOR UPDATE SKIP LOCKED
    );
    v_step_run_ids bigint[] := ARRAY(
        SELECT run.id FROM cb_step_runs AS run WHERE run.flow_run_id = ANY (v_ids) ORDER BY run.id FOR NO KEY UPDATE
    );
BEGIN
    PERFORM _cb_remove_items(v_step_run_ids);
    DELETE FROM cb_step_readiness WHERE flow_run_id = ANY (v_ids);
    DELETE FROM cb_step_inputs WHERE step_run_id = ANY (v_step_run_ids);
    DELETE FROM cb_signals WHERE flow_run_id = ANY (v_ids);
    DELETE FROM cb_events WHERE run_kind = 'step' AND run_id = ANY (v_step_run_ids);
    DELETE FROM cb_run_logs WHERE run_kind = 'step' AND run_id = ANY (v_step_run_ids);
    DELETE FROM cb_events WHERE run_kind = 'flow' AND run_id = ANY (v_ids);
    DELETE FROM cb_run_logs WHERE run_kind = 'flow' AND run_id = ANY (v_ids);
    DELETE FROM cb_run_tags WHERE run_kind = 'flow' AND run_id = ANY (v_ids);
    DELETE FROM cb_step_runs WHERE id = ANY (v_step_run_ids);
    DELETE FROM cb_flow_runs WHERE id = ANY (v_ids);
    RETURN cardinality(v_ids);
END;
$$;

-- Remove the items of these step runs, which have ended, and what is written down beside them.
CREATE OR REPLACE FUNCTION _cb_remove_items(p_step_run_ids bigint[])
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_ids bigint[] := ARRAY(SELECT item.id FROM cb_items AS item WHERE item.step_run_id = ANY (p_step_run_ids));
BEGIN
    IF v_ids = '{}' THEN
        RETURN;
    END IF;
    DELETE FROM cb_events WHERE run_kind = 'item' AND run_id = ANY (v_ids);
    DELETE FROM cb_run_logs WHERE run_kind = 'item' AND run_id = ANY (v_ids);
    DELETE FROM cb_items WHERE id = ANY (v_ids);
END;
$$;
