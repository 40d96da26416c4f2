-- Conditions: whether a value fulfils what a definition asks of it (F10).
--
-- Text is parsed when a task is declared, in Python; what is stored and evaluated here is the tree. Its nodes are
-- {"op": "and" | "or" | "not", "of": [nodes]}, or {"op", "field", "path"} with a "value" where the op has one. Nothing in
-- this file raises: values of the wrong type are an answer, which names the field. The evaluator in
-- definitions/conditions says the same of every condition and every value.
--
-- Locks: none.

-- Evaluate a condition on values by root, as {"input": …}: true or false, or the text of the error and a NULL verdict. A
-- decided side of 'and' and 'or' hides the error of another.
CREATE OR REPLACE FUNCTION _cb_evaluate_condition(p_tree jsonb, p_values jsonb)
RETURNS TABLE (verdict boolean, error text)
LANGUAGE plpgsql IMMUTABLE ROWS 1 SET search_path FROM CURRENT AS $$
DECLARE
    v_op text := p_tree ->> 'op';
    v_side jsonb;
    v_error text;
BEGIN
    IF v_op NOT IN ('and', 'or', 'not') THEN
        RETURN QUERY SELECT * FROM _cb_test_field(p_tree, _cb_find_value(p_tree -> 'path', p_values));
        RETURN;
    END IF;

    FOR v_side IN SELECT jsonb_array_elements(p_tree -> 'of') LOOP
        SELECT side.verdict, side.error INTO verdict, error FROM _cb_evaluate_condition(v_side, p_values) AS side;
        IF v_op = 'not' THEN
            verdict := NOT verdict;
            RETURN NEXT;
            RETURN;
        END IF;
        IF verdict = (v_op = 'or') THEN
            RETURN NEXT;
            RETURN;
        END IF;
        v_error := coalesce(v_error, error);
    END LOOP;
    error := v_error;
    verdict := CASE WHEN v_error IS NULL THEN v_op = 'and' END;
    RETURN NEXT;
END;
$$;

-- Follow a path, as ["input", "lines", 0]: names lead into objects, numbers into lists. NULL where it leads nowhere.
CREATE OR REPLACE FUNCTION _cb_find_value(p_path jsonb, p_values jsonb)
RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
DECLARE
    v_step jsonb;
    v_value jsonb := p_values;
BEGIN
    FOR v_step IN SELECT jsonb_array_elements(p_path) LOOP
        v_value := CASE
            WHEN jsonb_typeof(v_step) = 'string' AND jsonb_typeof(v_value) = 'object' THEN v_value -> (v_step #>> '{}')
            WHEN jsonb_typeof(v_step) = 'number' AND jsonb_typeof(v_value) = 'array' THEN v_value -> v_step::integer
        END;
    END LOOP;
    RETURN v_value;
END;
$$;

-- Evaluate one test of a condition on the value that its field has (NULL: it is missing) (F10b).
CREATE OR REPLACE FUNCTION _cb_test_field(p_test jsonb, p_found jsonb)
RETURNS TABLE (verdict boolean, error text)
LANGUAGE plpgsql IMMUTABLE ROWS 1 SET search_path FROM CURRENT AS $$
DECLARE
    v_op text := p_test ->> 'op';
    v_value jsonb := p_test -> 'value';
BEGIN
    IF p_found IS NULL THEN
        verdict := v_op = 'ne';
    ELSIF v_op = 'exists' THEN
        verdict := true;
    ELSIF v_op = 'truthy' THEN
        verdict := p_found NOT IN ('null', 'false', '0', '""', '[]', '{}');
    ELSIF v_op = 'eq' THEN
        verdict := p_found = v_value;
    ELSIF v_op = 'ne' THEN
        verdict := p_found <> v_value;
    ELSIF v_op = 'in' THEN
        IF jsonb_typeof(v_value) = 'array' THEN
            verdict := EXISTS (SELECT FROM jsonb_array_elements(v_value) AS one (value) WHERE one.value = p_found);
        ELSE
            error := 'in needs a list on the right, not ' || jsonb_typeof(v_value);
        END IF;
    ELSIF v_op = 'contains' THEN
        SELECT * INTO verdict, error FROM _cb_contains(p_found, v_value);
    ELSE
        SELECT * INTO verdict, error FROM _cb_compare_order(v_op, p_found, v_value);
    END IF;
    error := (p_test ->> 'field') || ': ' || error;
    RETURN NEXT;
END;
$$;

-- Whether a list has this element, a string this part, or an object this key; or the text of a type error.
CREATE OR REPLACE FUNCTION _cb_contains(p_whole jsonb, p_part jsonb)
RETURNS TABLE (verdict boolean, error text)
LANGUAGE plpgsql IMMUTABLE ROWS 1 SET search_path FROM CURRENT AS $$
DECLARE
    v_kind text := jsonb_typeof(p_whole);
BEGIN
    IF v_kind = 'array' THEN
        verdict := EXISTS (SELECT FROM jsonb_array_elements(p_whole) AS one (value) WHERE one.value = p_part);
    ELSIF v_kind NOT IN ('string', 'object') THEN
        error := 'contains needs a list, string or object on the left, not ' || v_kind;
    ELSIF jsonb_typeof(p_part) <> 'string' THEN
        error := pg_catalog.format('contains in a %s needs a string on the right, not %s', v_kind, jsonb_typeof(p_part));
    ELSIF v_kind = 'object' THEN
        verdict := p_whole ? (p_part #>> '{}');
    ELSE
        verdict := strpos(p_whole #>> '{}', p_part #>> '{}') > 0;
    END IF;
    RETURN NEXT;
END;
$$;

-- Compare two numbers, or two strings by code point, with gt, gte, lt or lte; or say that they are neither.
CREATE OR REPLACE FUNCTION _cb_compare_order(p_op text, p_left jsonb, p_right jsonb)
RETURNS TABLE (verdict boolean, error text)
LANGUAGE plpgsql IMMUTABLE ROWS 1 SET search_path FROM CURRENT AS $$
DECLARE
    v_left text := p_left #>> '{}';
    v_right text := p_right #>> '{}';
    v_sign integer;      -- of left - right
BEGIN
    IF jsonb_typeof(p_left) = 'number' AND jsonb_typeof(p_right) = 'number' THEN
        v_sign := CASE
            WHEN p_left::numeric = p_right::numeric THEN 0
            WHEN p_left::numeric < p_right::numeric THEN -1
            ELSE 1
        END;
    ELSIF jsonb_typeof(p_left) = 'string' AND jsonb_typeof(p_right) = 'string' THEN
        v_sign := CASE
            WHEN v_left = v_right THEN 0
            WHEN v_left COLLATE "C" < v_right COLLATE "C" THEN -1
            ELSE 1
        END;
    ELSE
        error := pg_catalog.format(
            '%s needs two numbers or two strings, not %s and %s', p_op, jsonb_typeof(p_left), jsonb_typeof(p_right)
        );
        RETURN NEXT;
        RETURN;
    END IF;
    verdict := CASE p_op WHEN 'gt' THEN v_sign > 0 WHEN 'gte' THEN v_sign >= 0 WHEN 'lt' THEN v_sign < 0 ELSE v_sign <= 0 END;
    RETURN NEXT;
END;
$$;

-- Decide a condition for each of these inputs, as two arrays: 'queued', 'skipped' or 'failed', and the error of the
-- failed. NULLs when there is no condition.
CREATE OR REPLACE FUNCTION _cb_decide_inputs(p_tree jsonb, p_inputs jsonb[])
RETURNS TABLE (statuses text[], errors jsonb[])
LANGUAGE plpgsql IMMUTABLE ROWS 1 SET search_path FROM CURRENT AS $$
BEGIN
    IF p_tree IS NOT NULL THEN
        SELECT pg_catalog.array_agg(
                   CASE WHEN decided.verdict THEN 'queued' WHEN decided.error IS NULL THEN 'skipped' ELSE 'failed' END
                   ORDER BY given.place
               ),
               pg_catalog.array_agg(
                   CASE WHEN decided.error IS NOT NULL THEN _cb_condition_error(decided.error) END ORDER BY given.place
               )
        INTO statuses, errors
        FROM pg_catalog.unnest(p_inputs) WITH ORDINALITY AS given (input, place)
        CROSS JOIN LATERAL _cb_evaluate_condition(p_tree, pg_catalog.jsonb_build_object('input', given.input)) AS decided;
    END IF;
    RETURN NEXT;
END;
$$;

-- What is stored of a run whose condition could not be decided.
CREATE OR REPLACE FUNCTION _cb_condition_error(p_message text)
RETURNS jsonb
LANGUAGE sql IMMUTABLE SET search_path FROM CURRENT AS $$
    SELECT pg_catalog.jsonb_build_object('type', 'ConditionError', 'message', p_message, 'traceback', '')
$$;
