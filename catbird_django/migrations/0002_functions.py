from django.db import migrations

from catbird_django.migrations._install_sql import InstallSQL


class Migration(migrations.Migration):
    dependencies = [("catbird", "0001_tables")]

    operations = [InstallSQL("0002_functions")]
