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
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', v_schema, p_role);
    CASE p_kind
        WHEN 'producer' THEN
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', _cb_functions(true), p_role);
        WHEN 'worker' THEN
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', _cb_functions(false), p_role);
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
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM %I', _cb_functions(false), p_role);
    EXECUTE format('REVOKE ALL ON %s FROM %I', _cb_tables(), p_role);
    EXECUTE format('REVOKE USAGE ON SCHEMA %I FROM %I', current_schema(), p_role);
END;
$$;
REVOKE ALL ON FUNCTION cb_revoke(name) FROM PUBLIC;

-- Our functions as a list for GRANT, but for those that grant: all of them, or only the producing ones, which are those
-- that run with the owner's rights.
CREATE OR REPLACE FUNCTION _cb_functions(p_only_producing boolean)
RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT string_agg(proc.oid::regprocedure::text, ', ' ORDER BY proc.proname)
    FROM pg_proc AS proc
    WHERE proc.pronamespace = current_schema()::regnamespace
      AND (proc.proname LIKE 'cb\_%' OR proc.proname LIKE '\_cb\_%')
      AND proc.proname NOT IN ('cb_grant', 'cb_revoke')
      AND (proc.prosecdef OR NOT p_only_producing)
$$;

-- Our tables as a list for GRANT.
CREATE OR REPLACE FUNCTION _cb_tables()
RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT string_agg(class.oid::regclass::text, ', ' ORDER BY class.relname)
    FROM pg_class AS class
    WHERE class.relnamespace = current_schema()::regnamespace AND class.relname LIKE 'cb\_%' AND class.relkind = 'r'
$$;

-- The GRANT statements that let a role read every column that holds no payload.
CREATE OR REPLACE FUNCTION _cb_viewer_grants(p_role name)
RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT string_agg(format('GRANT SELECT (%s) ON %s TO %I', visible.columns, visible.table_name, p_role), '; ')
    FROM (
        SELECT class.oid::regclass AS table_name, string_agg(quote_ident(attribute.attname), ', ') AS columns
        FROM pg_class AS class
        JOIN pg_attribute AS attribute ON attribute.attrelid = class.oid AND attribute.attnum > 0
        WHERE class.relnamespace = current_schema()::regnamespace AND class.relname LIKE 'cb\_%' AND class.relkind = 'r'
          AND NOT attribute.attisdropped
          AND attribute.attname NOT IN ('input', 'output', 'error', 'headers')
        GROUP BY class.oid
    ) AS visible
$$;
