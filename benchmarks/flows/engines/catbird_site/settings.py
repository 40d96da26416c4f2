"""As for tasks, with flows in the place of them. The longest lists are larger than a value may be by default."""

from benchmarks.tasks.engines.catbird_site import settings as for_tasks
from benchmarks.tasks.engines.catbird_site.settings import DATABASES, DEFAULT_AUTO_FIELD, SECRET_KEY, USE_TZ

__all__ = ["CATBIRD", "DATABASES", "DEFAULT_AUTO_FIELD", "INSTALLED_APPS", "SECRET_KEY", "USE_TZ"]

INSTALLED_APPS = ["catbird_django", "benchmarks.flows.engines.catbird_site"]
CATBIRD = {"MAX_PAYLOAD": 8 * 1024 * 1024, **for_tasks.CATBIRD}
