"""What was readable in the tables is sealed; going back opens it again."""

from django.db import migrations
from django.db.models import TextField, Value
from django.db.models.functions import Cast

import monitoring.models.secret_field
from monitoring.secret import Secret, unseal

SECRETS = (("Cluster", "token"), ("Channel", "secret"))


def stored(apps, model, field):
    rows = apps.get_model("monitoring", model).objects
    return rows.annotate(stored=Cast(field, TextField())).exclude(stored="").values_list("pk", "stored"), rows


def seal_all(apps, _editor):
    for model, field in SECRETS:
        found, rows = stored(apps, model, field)
        for pk, plain in found:
            rows.filter(pk=pk).update(**{field: Secret(plain)})


def open_all(apps, _editor):
    for model, field in SECRETS:
        found, rows = stored(apps, model, field)
        for pk, sealed in found:
            rows.filter(pk=pk).update(**{field: Value(unseal(sealed), output_field=TextField())})


class Migration(migrations.Migration):
    dependencies = [
        ("monitoring", "0002_savepoint_timetables"),
    ]

    operations = [
        migrations.AlterField("channel", "secret", monitoring.models.secret_field.SecretField()),
        migrations.AlterField("cluster", "token", monitoring.models.secret_field.SecretField()),
        migrations.RunPython(seal_all, open_all),
    ]
