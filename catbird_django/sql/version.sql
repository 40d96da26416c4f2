-- The handshake between the database and the code that calls it.

-- The migration that last installed these functions. `scripts/freeze_sql.py` keeps the literal current.
CREATE OR REPLACE FUNCTION cb_schema_version()
RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT '0002_functions'
$$;
