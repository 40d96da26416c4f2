"""The settings of the tests, and an app with flows that cannot work beside them."""

from project.settings_test import *  # noqa: F403
from project.settings_test import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.unruly.broken"]
