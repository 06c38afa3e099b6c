"""Add restarts through the Flink operator, and since when a resource has a problem."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('monitoring', '0017_yarn_sources'),
    ]

    operations = [
        migrations.AddField(
            model_name='discoverysource',
            name='may_change_resources',
            field=models.BooleanField(default=False),
        ),
        migrations.AddField(
            model_name='foundresource',
            name='problem_since',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='restartattempt',
            name='resource',
            field=models.JSONField(null=True),
        ),
    ]
