"""Add what the agent reports about streaming queries, and tokens whose only right is to report."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ('monitoring', '0009_watched_directories'),
    ]

    operations = [
        migrations.AddField(
            model_name='apitoken',
            name='reports_for',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='report_tokens', to='monitoring.cluster'),
        ),
        migrations.AlterField(
            model_name='cluster',
            name='discovery',
            field=models.CharField(choices=[('url', 'by URL'), ('zookeeper', 'through ZooKeeper'), ('directory', 'by checkpoint locations of Spark'), ('agent', 'by the agent in programs of Spark')], default='url', max_length=10),
        ),
        migrations.CreateModel(
            name='ReportedRun',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('query_id', models.CharField(max_length=32)),
                ('run_id', models.CharField(max_length=32)),
                ('name', models.CharField(max_length=500)),
                ('program', models.CharField(blank=True, default='', max_length=200)),
                ('spark_version', models.CharField(blank=True, default='', max_length=50)),
                ('started_at', models.DateTimeField()),
                ('idle_at', models.DateTimeField(null=True)),
                ('ended_at', models.DateTimeField(null=True)),
                ('was_replaced', models.BooleanField(default=False)),
                ('exception', models.TextField(null=True)),
                ('reported_at', models.DateTimeField()),
                ('dropped', models.PositiveIntegerField(default=0)),
                ('first_batch', models.BigIntegerField(null=True)),
                ('newest_batch', models.BigIntegerField(null=True)),
                ('last_id', models.BigIntegerField(default=0)),
                ('cluster', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='reported_runs', to='monitoring.cluster')),
            ],
        ),
        migrations.CreateModel(
            name='ReportedBatch',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('batch_id', models.BigIntegerField()),
                ('started_at', models.DateTimeField()),
                ('duration_ms', models.BigIntegerField(null=True)),
                ('state_size', models.BigIntegerField(null=True)),
                ('progress', models.JSONField()),
                ('run', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='batches', to='monitoring.reportedrun')),
            ],
        ),
        migrations.AddIndex(
            model_name='reportedrun',
            index=models.Index(fields=['cluster', 'name'], name='reported_runs_of_a_job'),
        ),
        migrations.AddConstraint(
            model_name='reportedrun',
            constraint=models.UniqueConstraint(fields=('cluster', 'run_id'), name='one_reported_run_per_cluster'),
        ),
        migrations.AddConstraint(
            model_name='reportedbatch',
            constraint=models.UniqueConstraint(fields=('run', 'batch_id'), name='one_report_per_batch'),
        ),
    ]
