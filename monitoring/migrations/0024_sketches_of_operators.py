"""Add quantile sketches to the roll-ups of operators, and an index to delete those of minutes."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('monitoring', '0023_rollups_of_operators'),
    ]

    operations = [
        migrations.AddField(
            model_name='operatorrollup',
            name='duration_sketch',
            field=models.BinaryField(db_default=b''),
        ),
        migrations.AddField(
            model_name='operatorrollup',
            name='version',
            field=models.SmallIntegerField(db_default=0),
        ),
        migrations.AddIndex(
            model_name='operatorrollup',
            index=models.Index(condition=models.Q(('seconds', 60)), fields=['start'], name='operators_of_minutes_by_time'),
        ),
    ]
