"""The host project under ASGI, with its static files: the demo and compose.yaml have no other web server."""

import os

from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")

application = ASGIStaticFilesHandler(get_asgi_application())
