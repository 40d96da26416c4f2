-- Roles beside the owner: producers send work, workers do it, viewers look on (R3).

-- Let a database role act as producer, worker or viewer. Saying it again changes nothing. A producer may call the
-- producing functions and touches no table; a worker may call every function and read and write the rows they change;
-- a viewer reads everything but payloads. Any other kind is refused.
CREATE OR REPLACE FUNCTION cb_grant(p_role name, p_kind text)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_schema name := current_schema();
BEGIN
    -- Whoever can create functions beside ours could put one in the place of a built-in that ours call.
    IF has_schema_privilege('public', v_schema, 'CREATE') OR has_schema_privilege(p_role, v_schema, 'CREATE') THEN
        RAISE EXCEPTION 'role % or PUBLIC may create objects in schema %: revoke that first', p_role, v_schema
            USING ERRCODE = 'CB001';
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', v_schema, p_role);
    CASE p_kind
        WHEN 'producer' THEN
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', _cb_producer_functions(), p_role);
        WHEN 'worker' THEN
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', _cb_worker_functions(), p_role);
            EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO %I', _cb_tables(), p_role);
        WHEN 'viewer' THEN
            EXECUTE _cb_viewer_grants(p_role);
        ELSE
            RAISE EXCEPTION 'p_kind is %, not producer, worker or viewer', coalesce(p_kind, 'NULL')
                USING ERRCODE = 'CB001';
    END CASE;
END;
$$;
REVOKE ALL ON FUNCTION cb_grant(name, text) FROM PUBLIC;

-- Take back everything that cb_grant gave to a role.
CREATE OR REPLACE FUNCTION cb_revoke(p_role name)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM %I', _cb_worker_functions(), p_role);
    EXECUTE format('REVOKE ALL ON %s FROM %I', _cb_tables(), p_role);
    EXECUTE format('REVOKE USAGE ON SCHEMA %I FROM %I', current_schema(), p_role);
END;
$$;
REVOKE ALL ON FUNCTION cb_revoke(name) FROM PUBLIC;

-- The functions that a producer may call, as a list for GRANT. Spelled out: an application may have functions and tables
-- of its own whose names begin with cb_.
CREATE OR REPLACE FUNCTION _cb_producer_functions()
RETURNS text
LANGUAGE sql IMMUTABLE SET search_path FROM CURRENT AS $$
    SELECT 'cb_find_signal, cb_run_flows, cb_run_task, cb_run_tasks, cb_signal_flow, cb_wake_tick, cb_wake_workers'
$$;

-- All our functions but those that grant, as a list for GRANT.
CREATE OR REPLACE FUNCTION _cb_worker_functions()
RETURNS text
LANGUAGE sql IMMUTABLE SET search_path FROM CURRENT AS $$
    SELECT '
        _cb_advance_flows, _cb_begin_flow_runs, _cb_begin_steps, _cb_begin_trials, _cb_cancel_flows_of,
        _cb_cancel_items, _cb_cancel_live_steps, _cb_cancel_queued_items, _cb_check_keys, _cb_check_run_options,
        _cb_check_tags, _cb_compare_order, _cb_complete_canceling_items, _cb_complete_canceling_steps,
        _cb_complete_canceling_tasks, _cb_complete_flows, _cb_complete_flows_early, _cb_complete_inline_steps,
        _cb_condition_error, _cb_condition_values, _cb_contains, _cb_count_ended_items, _cb_count_failures,
        _cb_count_handlers, _cb_count_items, _cb_count_successes, _cb_deadline_error, _cb_decide_conditions,
        _cb_decide_inputs, _cb_decide_steps, _cb_different_verdicts, _cb_doctor_checks, _cb_doctor_database,
        _cb_doctor_due_steps, _cb_doctor_flow_orphans, _cb_doctor_flow_runs, _cb_doctor_flows, _cb_doctor_history,
        _cb_doctor_items, _cb_doctor_keys, _cb_doctor_maps, _cb_doctor_orphans, _cb_doctor_readiness, _cb_doctor_runs,
        _cb_doctor_signals, _cb_doctor_steps, _cb_doctor_waiting, _cb_doctor_workers, _cb_due_at, _cb_end_batch,
        _cb_end_canceling_items, _cb_end_canceling_steps, _cb_end_canceling_tasks, _cb_end_flows, _cb_end_held_items,
        _cb_end_items, _cb_end_items_in_batches, _cb_end_overdue_canceling_items, _cb_end_overdue_canceling_steps,
        _cb_end_overlooked_items,
        _cb_end_overdue_canceling_tasks, _cb_end_stopped_flows, _cb_end_waits_for_signals, _cb_error_in_place,
        _cb_error_in_short, _cb_error_of_item, _cb_evaluate_condition, _cb_expand_maps, _cb_expire_flows,
        _cb_expire_tasks, _cb_fail_flows_of, _cb_fail_overdue_flows, _cb_fail_waiting_steps, _cb_find_due_items,
        _cb_find_suspect_items, _cb_find_suspect_steps, _cb_find_value, _cb_hold_flow_runs, _cb_is_flow_row,
        _cb_is_watched, _cb_item_lanes, _cb_judge_signal, _cb_lacks_a_dependency, _cb_limit_to_breakers,
        _cb_list_of_items, _cb_lists_for, _cb_lock_breakers, _cb_lock_flow_runs_of, _cb_lock_steps_of_items,
        _cb_log_runs, _cb_lost_error, _cb_make_flow_runs, _cb_make_items_due, _cb_make_steps_due, _cb_make_tasks_due,
        _cb_maps, _cb_may_finish, _cb_may_vacuum, _cb_meet_requirements, _cb_meet_signal, _cb_no_list_error,
        _cb_no_output_error, _cb_note_births, _cb_note_claims, _cb_note_events, _cb_note_failures,
        _cb_note_flow_failures, _cb_note_inputs, _cb_note_item_claims, _cb_note_task_events, _cb_notify_sleepers,
        _cb_now, _cb_old_transactions, _cb_outputs_for, _cb_queue_steps, _cb_register_flow, _cb_register_steps,
        _cb_remove_flows, _cb_remove_items, _cb_remove_tasks, _cb_run_debounced_tasks, _cb_run_flow_on_fail,
        _cb_run_keyed_tasks, _cb_run_on_fail, _cb_run_special_tasks, _cb_settle_items_end, _cb_settle_steps_end,
        _cb_signal_of, _cb_skip_waiting_steps, _cb_step_may_finish, _cb_still_canceling_tasks, _cb_stop_flows,
        _cb_tag_flows, _cb_tag_tasks, _cb_take_back_lost_items, _cb_take_back_lost_steps, _cb_take_back_lost_tasks,
        _cb_take_lease, _cb_tell_finished_flows, _cb_tell_finished_tasks, _cb_test_field, _cb_tick_flows,
        _cb_tick_items, _cb_trial_until, _cb_verdicts, _cb_wake_tick_for_signals, cb_announce_sleep,
        cb_apply_flow_retention, cb_apply_retention, cb_cancel_claimed_items, cb_cancel_claimed_steps,
        cb_cancel_claimed_tasks, cb_cancel_flows, cb_cancel_tasks, cb_claim_items, cb_claim_steps,
        cb_claim_suspect_tasks, cb_claim_tasks, cb_complete_items, cb_complete_items_early, cb_complete_steps,
        cb_complete_steps_early, cb_complete_tasks, cb_count_abandoned, cb_dead_rows, cb_doctor, cb_drain_worker,
        cb_explain_flow, cb_extend_items, cb_extend_steps, cb_extend_tasks, cb_fail_items, cb_fail_steps, cb_fail_tasks,
        cb_find_lanes, cb_find_locked_items, cb_find_locked_steps, cb_find_locked_tasks, cb_find_signal,
        cb_find_step_lanes, cb_find_steps, cb_find_task_lanes, cb_keep_house, cb_log_items, cb_log_steps, cb_log_tasks,
        cb_ping_worker, cb_prune_tasks, cb_read_flow_runs, cb_read_items, cb_read_step_runs, cb_read_task_runs,
        cb_register_flows, cb_register_tasks, cb_register_worker, cb_release_items, cb_release_steps, cb_release_tasks,
        cb_renew_worker, cb_report_items, cb_report_steps, cb_report_tasks, cb_retry_flows, cb_retry_tasks,
        cb_run_flows, cb_run_task, cb_run_tasks, cb_schema_version, cb_set_listening, cb_signal_flow, cb_skip_steps,
        cb_stop_worker, cb_tick, cb_wake_tick, cb_wake_workers, cb_watch, cb_writers
    '
$$;

-- Our tables, as a list for GRANT.
CREATE OR REPLACE FUNCTION _cb_tables()
RETURNS text
LANGUAGE sql IMMUTABLE SET search_path FROM CURRENT AS $$
    SELECT '
        cb_breakers, cb_events, cb_flow_runs, cb_flows, cb_items, cb_leases, cb_run_logs, cb_run_tags, cb_signals,
        cb_step_dependencies, cb_step_inputs, cb_step_readiness, cb_step_runs, cb_steps, cb_task_runs, cb_tasks, cb_workers
    '
$$;

-- The GRANT statements that let a role read what holds no payload. A new column is hidden until it is named here.
CREATE OR REPLACE FUNCTION _cb_viewer_grants(p_role name)
RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT string_agg(format('GRANT SELECT (%s) ON %I TO %I', visible.columns, visible.table_name, p_role), '; ')
    FROM (
        VALUES
            ('cb_tasks', 'id, name, queue, description, handler, max_retries, max_lost, condition, on_fail, on_cancel,
                retention, options, fingerprint, registered_at'),
            ('cb_task_runs', 'id, task_id, queue, status, priority, run_at, visible_at, expires_at, origin_id,
                role, lease_until, worker_id, cancel_requested_at, delivery_count, failure_count, lost_count, queued_at, started_at, finished_at'),
            ('cb_workers', 'id, boot_id, host, pid, version, queues, handlers, slots, started_at, seen_at, stopped_at,
                draining_since, is_listening, abandoned_count, sleeping_since'),
            ('cb_leases', 'id, name, worker_id, held_until'),
            ('cb_breakers', 'id, task_id, failure_count, open_until, trial_run_id'),
            ('cb_run_logs', 'id, at, run_kind, run_id, attempt, level'),
            ('cb_run_tags', 'id, run_kind, run_id'),
            ('cb_flows', 'id, name, version, fingerprint, queue, description, on_fail, deadline, retention, outputs,
                output_required, final_count, registered_at'),
            ('cb_steps', 'id, flow_id, position, name, kind, description, handler, fingerprint, dependency_count,
                required_count, over, max_failed_items, is_inline, is_atomic, takes_lists, takes_input, takes_signal, condition,
                condition_roots, condition_needs_signal, may_skip, on_unmet,
                on_exhausted, on_cancel, is_final, output_rank, max_retries, max_lost, delay, deadline, options'),
            ('cb_step_dependencies', 'id, step_id, dependency_id, parameter, is_optional, is_order_only'),
            ('cb_flow_runs', 'id, flow_id, flow_name, status, priority, queue, expires_at, deadline_at, origin_id, role,
                run_at, started_at, finished_at, ending_since, outcome, output_run_id, early_step'),
            ('cb_step_runs', 'id, flow_run_id, step_id, lost_count, priority, queue, status, lease_until, visible_at,
                deadline_at, cancel_requested_at, skip_reason, worker_id, delivery_count, failure_count, signaled_at,
                queued_at, started_at, finished_at, items_spawned, items_completed, items_failed, items_canceled,
                items_ended_from, signal_due_at, signal_overdue_at'),
            ('cb_items', 'id, flow_run_id, step_run_id, step_id, index, lost_count, priority, queue, status, lease_until,
                visible_at, cancel_requested_at, source_id, worker_id, delivery_count, failure_count, queued_at,
                started_at, finished_at'),
            ('cb_step_readiness', 'id, flow_run_id, step_id, step_run_id, required_count, completed_count, skipped_count'),
            ('cb_step_inputs', 'id, step_run_id, source, source_run_id, place, is_skipped'),
            ('cb_signals', 'id, flow_run_id, step, actor, verdict, at'),
            ('cb_events', 'id, at, run_kind, run_id, event, from_status, to_status, actor')
    ) AS visible (table_name, columns)
$$;
