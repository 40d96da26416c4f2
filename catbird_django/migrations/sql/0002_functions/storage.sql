-- How the hot tables are kept: not functions, but settings of the tables, applied with the functions.

-- Every run leaves two dead rows behind, so autovacuum must not wait for a share of a table that only grows, nor pause.
ALTER TABLE cb_task_runs SET (
    fillfactor = 85,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);

-- A handful of rows, written every few seconds by each worker and read by every producer.
ALTER TABLE cb_workers SET (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 200
);

-- A row for each task that fails now and then, written with each failure and read by every claim.
ALTER TABLE cb_breakers SET (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 200
);

-- Steps are claimed and settled like task runs, and their counts are written once for each thing they require.
ALTER TABLE cb_step_runs SET (
    fillfactor = 85,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE cb_step_readiness SET (
    fillfactor = 85,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
-- Items are to maps what runs are to tasks, and there may be many more of them.
ALTER TABLE cb_items SET (
    fillfactor = 85,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);
