"""Store the address of the History Server of a Flink cluster."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('monitoring', '0021_newest_completed'),
    ]

    operations = [
        migrations.AddField('cluster', 'history_server', models.CharField(blank=True, default='', max_length=500)),
    ]
