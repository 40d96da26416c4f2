-- Events: what really happened to a run beside its ordinary life, which its row's own timestamps tell (E1).
--
-- Retries, failures, lost deliveries, releases, cancels, skips and whatever people do are always written; being queued,
-- claimed and completed only when the caller asks for all events. What changed nothing leaves none. They are written in
-- the transaction of the change, and removed together with the run.
--
-- Locks: none.

-- Write one event for each of these task runs. p_details is one JSON object per run, or NULL for none at all.
CREATE OR REPLACE FUNCTION _cb_note_task_events(
    p_event text,
    p_run_ids bigint[],
    p_from_status text,
    p_to_status text,
    p_actor text,
    p_delivery_tokens uuid[] DEFAULT NULL,
    p_details jsonb[] DEFAULT NULL
)
RETURNS void
LANGUAGE sql SET search_path FROM CURRENT AS $$
    INSERT INTO cb_events (at, run_kind, run_id, event, from_status, to_status, actor, delivery_token, details)
    SELECT _cb_now(), 'task', noted.run_id, p_event, p_from_status, p_to_status, p_actor, noted.delivery_token,
           noted.details
    FROM ROWS FROM (
        pg_catalog.unnest(p_run_ids), pg_catalog.unnest(p_delivery_tokens), pg_catalog.unnest(p_details)
    ) AS noted (run_id, delivery_token, details)
    ORDER BY noted.run_id
$$;

-- What an event keeps of an error: enough to tell one from another; the traceback stays with the run.
CREATE OR REPLACE FUNCTION _cb_error_in_short(p_error jsonb)
RETURNS jsonb
LANGUAGE sql IMMUTABLE SET search_path FROM CURRENT AS $$
    SELECT pg_catalog.jsonb_build_object('error', p_error ->> 'type', 'message', left(p_error ->> 'message', 500))
$$;
