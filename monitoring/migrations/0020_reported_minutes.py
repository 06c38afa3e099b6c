"""Add the rows that reported queries read per minute, and reword the label of times without polls."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('monitoring', '0019_accepted_cancellations'),
    ]

    operations = [
        migrations.AlterField(
            model_name='outage',
            name='kind',
            field=models.CharField(choices=[('no_answer', 'the cluster did not answer'), ('stranger', 'another cluster answered at its address'), ('not_asked', 'Waymark did not poll the cluster')], max_length=10),
        ),
        migrations.CreateModel(
            name='ReportedMinute',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField()),
                ('rows', models.BigIntegerField(null=True)),
                ('run', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='minutes', to='monitoring.reportedrun')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('run', 'at'), name='one_row_per_reported_minute')],
            },
        ),
    ]
