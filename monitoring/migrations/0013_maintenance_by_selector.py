"""Maintenance windows choose jobs as rules do."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('monitoring', '0012_launch_versions'),
    ]

    operations = [
        migrations.RemoveField(
            model_name='maintenancewindow',
            name='labels',
        ),
        migrations.AddField(
            model_name='maintenancewindow',
            name='selector',
            field=models.CharField(blank=True, default='', max_length=500),
        ),
    ]
