"""Add when a cluster accepted to cancel a run."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('monitoring', '0018_restart_through_operator'),
    ]

    operations = [
        migrations.AddField(
            model_name='run',
            name='cancel_accepted_at',
            field=models.DateTimeField(null=True),
        ),
    ]
