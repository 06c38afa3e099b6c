"""Count failed log-ins by a digest of the typed name: it may be a password in the wrong field.

The rows count for minutes only, so they are deleted.
"""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = (("monitoring", "0037_storage_that_was_silent"),)

    operations = (
        migrations.RunSQL("DELETE FROM monitoring_loginfailure", migrations.RunSQL.noop),
        migrations.RemoveIndex(model_name="loginfailure", name="failures_of_a_user"),
        migrations.RemoveField(model_name="loginfailure", name="username"),
        migrations.AddField(
            model_name="loginfailure",
            name="name_digest",
            field=models.CharField(default="", max_length=64),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name="loginfailure",
            name="has_account",
            field=models.BooleanField(default=False),
            preserve_default=False,
        ),
        migrations.AddIndex(
            model_name="loginfailure",
            index=models.Index(fields=["name_digest", "-at"], name="failures_of_a_name"),
        ),
    )
