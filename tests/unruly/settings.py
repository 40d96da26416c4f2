"""The settings of the tests, and the unruly app beside them: for processes that tests start."""

from project.settings_test import *  # noqa: F403
from project.settings_test import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.unruly"]
