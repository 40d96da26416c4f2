# Shorthands; `python3 bootstrap.py --help` says more, and needs no make.
.PHONY: demo test check docs pins

demo test check docs:
	python3 bootstrap.py $@

# Compile the pins, for every Python and platform at once. Needs uv.
UV_COMPILE = uv pip compile --universal --python-version 3.11 --no-header --no-emit-index-url --no-emit-find-links

pins:
	$(UV_COMPILE) requirements/runtime.in -o requirements.txt
	$(UV_COMPILE) requirements/test.in -o requirements/test.txt
	$(UV_COMPILE) requirements/check.in -o requirements/check.txt
	$(UV_COMPILE) requirements/browser.in -o requirements/browser.txt
