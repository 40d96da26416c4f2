# The host project, for compose.yaml: web server and workers are this one image with different commands.
FROM python:3.12-slim

ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /application

COPY requirements.txt .
RUN pip install --no-cache-dir --disable-pip-version-check -r requirements.txt

COPY manage.py .
COPY catbird_django catbird_django
COPY project project
COPY templates templates

RUN useradd --system --no-create-home catbird
USER catbird

EXPOSE 8000
CMD ["python", "manage.py", "catbird_worker"]
