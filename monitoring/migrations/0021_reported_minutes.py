"""Reword the label of times in which Waymark did not poll a cluster."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('monitoring', '0018_restart_through_operator'),
    ]

    operations = [
        migrations.AlterField(
            model_name='outage',
            name='kind',
            field=models.CharField(choices=[('no_answer', 'the cluster did not answer'), ('stranger', 'another cluster answered at its address'), ('not_asked', 'Waymark did not poll the cluster')], max_length=10),
        ),
    ]
