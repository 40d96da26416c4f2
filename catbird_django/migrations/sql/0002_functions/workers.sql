-- Workers: who is there, who sleeps, who has to be woken.
--
-- A worker that found nothing announces that it sleeps and looks once more before it does. Whoever queues work asks
-- whether anyone sleeps, after the commit, and notifies only then (R9a): NOTIFY inside the transaction would make producers
-- wait for each other. A call that is a transaction of its own may ask in the same statement, once it counts as a writer: a
-- worker that announces after that is not seen, but sees us: it does not go to sleep before every transaction that was
-- writing when it announced has ended (`cb_writers`), and it has looked again. A lost notification costs one poll, never a run.
--
-- Locks: leases, then workers by id.

-- Enter a worker process, known by its random boot id. Returns its id. p_worker_id enters one again whose row was removed
-- while it was not heard of; if it is there after all, nothing changes.
CREATE OR REPLACE FUNCTION cb_register_worker(
    p_boot_id uuid,
    p_host text,
    p_pid integer,
    p_version text,
    p_queues jsonb,
    p_handlers jsonb,
    p_slots integer,
    p_worker_id bigint DEFAULT NULL
)
RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO cb_workers (boot_id, host, pid, version, queues, handlers, slots, started_at, seen_at)
    SELECT p_boot_id, p_host, p_pid, p_version, p_queues, p_handlers, p_slots, _cb_now(), _cb_now()
    WHERE p_worker_id IS NULL;
    INSERT INTO cb_workers (id, boot_id, host, pid, version, queues, handlers, slots, started_at, seen_at)
    SELECT p_worker_id, p_boot_id, p_host, p_pid, p_version, p_queues, p_handlers, p_slots, _cb_now(), _cb_now()
    WHERE p_worker_id IS NOT NULL
    ON CONFLICT DO NOTHING;
    RETURN (SELECT worker.id FROM cb_workers AS worker WHERE worker.boot_id = p_boot_id);
END;
$$;

-- Say that this worker is alive. False when its row is gone, or held by somebody just now: nobody may keep a worker from
-- its work by a lock on its row, so the functions of this file wait for none.
CREATE OR REPLACE FUNCTION cb_renew_worker(p_worker_id bigint)
RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE cb_workers
    SET seen_at = _cb_now(), stopped_at = NULL
    WHERE id = (SELECT id FROM cb_workers WHERE id = p_worker_id FOR UPDATE SKIP LOCKED);
    RETURN FOUND;
END;
$$;

-- Say how many handlers this worker has abandoned so far: they outlived their timeout and could not be stopped (T8). False
-- when its row is gone, or held by somebody just now.
CREATE OR REPLACE FUNCTION cb_count_abandoned(p_worker_id bigint, p_count integer)
RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE cb_workers
    SET abandoned_count = p_count
    WHERE id = (SELECT id FROM cb_workers WHERE id = p_worker_id FOR UPDATE SKIP LOCKED);
    RETURN FOUND;
END;
$$;

-- Say that this worker drains: it claims no more, and ends when what it runs has ended (W8). Saying it again changes
-- nothing. False when its row is gone, or held by somebody just now.
CREATE OR REPLACE FUNCTION cb_drain_worker(p_worker_id bigint)
RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE cb_workers
    SET draining_since = coalesce(draining_since, _cb_now()), sleeping_since = NULL
    WHERE id = (SELECT id FROM cb_workers WHERE id = p_worker_id FOR UPDATE SKIP LOCKED);
    RETURN FOUND;
END;
$$;

-- Say that this worker has stopped, and let another do the upkeep it did. Saying it again changes nothing. False when one
-- of these rows is held by somebody just now: say it again.
CREATE OR REPLACE FUNCTION cb_stop_worker(p_worker_id bigint)
RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM cb_leases
    WHERE id IN (SELECT id FROM cb_leases WHERE worker_id = p_worker_id ORDER BY id FOR UPDATE SKIP LOCKED);
    UPDATE cb_workers
    SET stopped_at = _cb_now(), seen_at = _cb_now(), sleeping_since = NULL
    WHERE id = (SELECT id FROM cb_workers WHERE id = p_worker_id FOR UPDATE SKIP LOCKED) AND stopped_at IS NULL;
    RETURN NOT EXISTS (SELECT FROM cb_workers WHERE id = p_worker_id AND stopped_at IS NULL)
       AND NOT EXISTS (SELECT FROM cb_leases WHERE worker_id = p_worker_id);
END;
$$;

-- Send this worker a notification, to see whether it arrives. Writes nothing.
CREATE OR REPLACE FUNCTION cb_ping_worker(p_worker_id bigint)
RETURNS integer
LANGUAGE sql SET search_path FROM CURRENT AS $$
    SELECT 1 FROM pg_notify('cb_work', format('ping %s', p_worker_id))
$$;

-- Say whether notifications reach this worker. False when its row is gone, or held by somebody just now.
CREATE OR REPLACE FUNCTION cb_set_listening(p_worker_id bigint, p_is_listening boolean)
RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE cb_workers
    SET is_listening = p_is_listening, sleeping_since = CASE WHEN p_is_listening THEN sleeping_since END
    WHERE id = (SELECT id FROM cb_workers WHERE id = p_worker_id FOR UPDATE SKIP LOCKED);
    RETURN FOUND;
END;
$$;

-- Announce that this worker is about to sleep until it is notified. It must look for work once more afterwards. False
-- when the announcement could not be made: then it must poll.
CREATE OR REPLACE FUNCTION cb_announce_sleep(p_worker_id bigint)
RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE cb_workers
    SET sleeping_since = _cb_now(), seen_at = _cb_now()
    WHERE id = (SELECT id FROM cb_workers WHERE id = p_worker_id FOR UPDATE SKIP LOCKED);
    RETURN FOUND;
END;
$$;

-- Which transactions are writing just now: all before oldest have ended, none from next on had begun. Once oldest has
-- reached what next was, everything that was under way then has ended.
CREATE OR REPLACE FUNCTION cb_writers()
RETURNS TABLE (oldest bigint, next bigint)
LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    SELECT pg_snapshot_xmin(taken.snapshot)::text::bigint, pg_snapshot_xmax(taken.snapshot)::text::bigint
    FROM (SELECT pg_current_snapshot() AS snapshot) AS taken
$$;

-- Wake the workers that sleep and serve any of these queues, with one notification. Returns how many were asleep. Each is
-- woken once: it announces again when it goes back to sleep. For a transaction of its own, after the work is committed:
-- inside a longer one it would keep the rows of those workers locked. Waits for no lock.
CREATE OR REPLACE FUNCTION cb_wake_workers(p_queues text[])
RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_asleep bigint[] := _cb_notify_sleepers(p_queues);
BEGIN
    -- So that the next producer need not notify them again. A row that is locked is left as it is: at worst its worker
    -- is notified twice.
    UPDATE cb_workers
    SET sleeping_since = NULL
    WHERE id = ANY (ARRAY(SELECT id FROM cb_workers WHERE id = ANY (v_asleep) ORDER BY id FOR UPDATE SKIP LOCKED));
    RETURN pg_catalog.cardinality(v_asleep);
END;
$$;
REVOKE ALL ON FUNCTION cb_wake_workers(text[]) FROM PUBLIC;

-- Notify the workers that sleep and serve any of these queues; return their ids. Writes nothing.
CREATE OR REPLACE FUNCTION _cb_notify_sleepers(p_queues text[])
RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_asleep bigint[] := ARRAY(
        SELECT worker.id
        FROM cb_workers AS worker
        WHERE worker.sleeping_since IS NOT NULL AND (worker.queues IS NULL OR worker.queues ?| p_queues)
        ORDER BY worker.id
    );
BEGIN
    IF v_asleep <> '{}' THEN
        -- Ids, or nothing when they do not fit: then everybody looks.
        PERFORM pg_notify(
            'cb_work',
            CASE WHEN pg_catalog.cardinality(v_asleep) < 300 THEN pg_catalog.array_to_string(v_asleep, ',') ELSE '' END
        );
    END IF;
    RETURN v_asleep;
END;
$$;
